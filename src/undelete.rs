//! The command `forebay undelete`.

use std::ops::ControlFlow;
use std::path::Path;

use crate::admin::{
    self, ClientError, TRASH_HEAD, TrashReport, TrashRequest, TrashRow, TrashTable,
};

/// Lists the trash of the gateway that uses `data_dir`, page by page, or brings something back. `show` gets the text for
/// the user, part by part.
///
/// # Errors
/// As for [`admin::trash`].
pub async fn undelete(
    data_dir: &Path,
    mut request: TrashRequest,
    json: bool,
    mut show: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<(), ClientError> {
    let lists = matches!(request, TrashRequest::List { .. });
    let mut shown = Shown::default();
    let report = loop {
        let mut flow = ControlFlow::Continue(());
        let each = |rows: Vec<TrashRow>| {
            let text = match (json, lists) {
                (true, _) => shown.as_json(&rows),
                (false, true) => shown.as_table(&rows),
                (false, false) => shown.count(&rows),
            };
            if flow.is_continue() && !text.is_empty() {
                flow = show(&text);
            }
        };
        let report = admin::trash(data_dir, request, each).await;
        if report.is_err() && json && shown.objects > 0 && flow.is_continue() {
            // What was shown is whole JSON all the same.
            let _ = show(shown.json_end());
        }
        let report = report?;
        match report.next {
            Some(_) if flow.is_break() => return Ok(()),
            Some(_) => request = TrashRequest::List { after: report.next },
            None => break report,
        }
    };
    let _ = show(&match (json, lists) {
        (true, _) => shown.json_end().to_owned(),
        (false, true) => shown.table_end().to_owned(),
        (false, false) => shown.brought_back(&report),
    });
    Ok(())
}

/// What was shown so far.
#[derive(Default)]
struct Shown {
    objects: u64,
    first: Option<TrashRow>,
}

impl Shown {
    /// Objects of a JSON array, with its beginning before the first.
    fn as_json(&mut self, rows: &[TrashRow]) -> String {
        let mut text = String::new();
        for row in rows {
            text += if self.objects == 0 { "[" } else { "," };
            self.objects += 1;
            // Plain records are always written.
            let object = serde_json::to_string_pretty(row).unwrap_or_default();
            for line in object.lines() {
                text += "\n  ";
                text += line;
            }
        }
        text
    }

    fn json_end(&self) -> &'static str {
        match self.objects {
            0 => "[]\n",
            _ => "\n]\n",
        }
    }

    /// Lines of a table, with its head before the first.
    fn as_table(&mut self, rows: &[TrashRow]) -> String {
        let head = match (self.objects, rows.len()) {
            (0, 1..) => TRASH_HEAD,
            _ => "",
        };
        self.objects += rows.len() as u64;
        format!("{head}{}", TrashTable(rows))
    }

    fn table_end(&self) -> &'static str {
        match self.objects {
            0 => "the trash is empty\n",
            _ => "",
        }
    }

    fn count(&mut self, rows: &[TrashRow]) -> String {
        self.objects += rows.len() as u64;
        if self.first.is_none() {
            self.first = rows.first().cloned();
        }
        String::new()
    }

    fn brought_back(&self, report: &TrashReport) -> String {
        let mut text = match &self.first {
            Some(one) if self.objects == 1 => {
                let path = one.path.as_ref().unwrap_or(&one.name);
                format!("{} is back\n", path.0.escape_ascii())
            }
            _ => format!("{} files and directories are back\n", self.objects),
        };
        let left = report.left;
        if left > 0 {
            text += &format!(
                "{left} stay in the trash: something else has their path; bring them back with --id and --to\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::fake::some_trash;

    #[test]
    fn json_in_parts_is_what_it_is_at_once() {
        let rows: Vec<TrashRow> = (1..=3).map(some_trash).collect();
        for parts in [&[3][..], &[1, 2], &[1, 0, 1, 1], &[0]] {
            let (mut shown, mut text, mut from) = (Shown::default(), String::new(), 0);
            for part in parts {
                text += &shown.as_json(&rows[from..from + part]);
                from += part;
            }
            text += shown.json_end();
            let whole = serde_json::to_string_pretty(&rows[..from]).unwrap();
            assert_eq!(text, format!("{whole}\n"));
        }
    }

    #[test]
    fn a_table_has_one_head() {
        let rows: Vec<TrashRow> = (1..=3).map(some_trash).collect();
        let mut shown = Shown::default();
        let text = [&rows[..0], &rows[..1], &rows[1..]].map(|rows| shown.as_table(rows));
        assert_eq!(text.concat(), format!("{TRASH_HEAD}{}", TrashTable(&rows)));
        assert_eq!(shown.table_end(), "");
        assert_eq!(Shown::default().table_end(), "the trash is empty\n");
    }
}
