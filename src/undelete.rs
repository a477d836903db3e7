//! The command `forebay undelete`.

use std::ops::ControlFlow;
use std::path::Path;

use crate::admin::{
    self, ClientError, TRASH_HEAD, TrashReport, TrashRequest, TrashRow, TrashTable,
};

/// Lists the trash of the gateway that uses `data_dir`, page by page, or brings something back. `show` gets the text for
/// the user.
///
/// # Errors
/// As for [`admin::trash`].
pub async fn undelete(
    data_dir: &Path,
    request: TrashRequest,
    json: bool,
    mut show: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<(), ClientError> {
    let lists = matches!(request, TrashRequest::List { .. });
    let TrashReport {
        mut objects,
        left,
        mut next,
    } = admin::trash(data_dir, request).await?;
    if json {
        while let Some(after) = next {
            let after = Some(after);
            let more = admin::trash(data_dir, TrashRequest::List { after }).await?;
            objects.extend(more.objects);
            next = more.next;
        }
        // Plain records are always written.
        let text = serde_json::to_string_pretty(&objects).unwrap_or_default();
        let _ = show(&format!("{text}\n"));
        return Ok(());
    }
    if !lists {
        let _ = show(&brought_back(&objects, left));
        return Ok(());
    }
    if objects.is_empty() {
        let _ = show("the trash is empty\n");
        return Ok(());
    }
    let mut head = TRASH_HEAD;
    loop {
        if show(&format!("{head}{}", TrashTable(&objects))).is_break() || next.is_none() {
            return Ok(());
        }
        head = "";
        let more = admin::trash(data_dir, TrashRequest::List { after: next }).await?;
        (objects, next) = (more.objects, more.next);
    }
}

fn brought_back(objects: &[TrashRow], left: u64) -> String {
    let mut text = match objects {
        [one] => {
            let path = one.path.as_ref().unwrap_or(&one.name);
            format!("{} is back\n", path.0.escape_ascii())
        }
        many => format!("{} files and directories are back\n", many.len()),
    };
    if left > 0 {
        text += &format!(
            "{left} stay in the trash: something else has their path; bring them back with --id and --to\n"
        );
    }
    text
}
