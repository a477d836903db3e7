//! A source with the mutants of all its functions.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::VARIABLE;
use super::function::Function;

/// A change of lines within the body of a function.
#[derive(Debug)]
pub(super) struct Part<'m> {
    /// The name of the mutant.
    pub(super) mutant: &'m str,
    /// The function.
    pub(super) function: Function,
    /// The lines that it replaces; none if it only adds lines.
    pub(super) range: Range<usize>,
    /// The lines that come in their place.
    pub(super) text: String,
}

/// A file with switched functions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SwitchedFile {
    /// The file, below the checkout's folder.
    pub(crate) path: PathBuf,
    /// Its contents.
    pub(crate) text: String,
    /// Lines with the names of the mutants that they are due to. A part of other lines follows these.
    regions: Vec<(Range<usize>, Vec<String>)>,
}

impl SwitchedFile {
    /// Switches the functions of a source.
    pub(super) fn of(path: &Path, source: &str, parts: Vec<Part<'_>>) -> SwitchedFile {
        let lines: Vec<_> = source.split_inclusive('\n').collect();
        let mut file = SwitchedFile {
            path: path.to_owned(),
            text: String::with_capacity(2 * source.len()),
            regions: Vec::new(),
        };
        let mut done = 0;
        for (function, mut parts) in by_function(parts) {
            parts.sort_by_key(|part| (part.range.start, part.range.end));
            file.text.push_str(&lines[done..=function.open].concat());
            file.push_switch(
                &lines[function.open + 1..function.close],
                function.open + 1,
                &parts,
            );
            done = function.close;
        }
        file.text.push_str(&lines[done..].concat());
        file
    }

    /// Appends a choice between a body, whose first line has this number, and those with its changes.
    fn push_switch(&mut self, body: &[&str], first: usize, parts: &[Part<'_>]) {
        let mut names: Vec<_> = parts.iter().map(|part| part.mutant).collect();
        names.sort_unstable();
        names.dedup();
        let begin = self.lines();
        let place = self.regions.len();
        let all = names.iter().map(|name| (*name).to_owned()).collect();

        self.text.push_str(&format!(
            "static {VARIABLE}: ::std::sync::LazyLock<u32> = ::std::sync::LazyLock::new(|| {{\n\
             match ::std::env::var(\"{VARIABLE}\").as_deref() {{\n"
        ));
        for (number, name) in (1..).zip(&names) {
            self.text.push_str(&format!(
                "::std::result::Result::Ok(\"{name}\") => {number},\n"
            ));
        }
        self.text
            .push_str(&format!("_ => 0,\n}}\n}});\nmatch *{VARIABLE} {{\n"));
        for (number, name) in (1..).zip(&names) {
            self.text.push_str(&format!("{number} => {{\n"));
            let begin = self.lines();
            let mut done = 0;
            for part in parts.iter().filter(|part| part.mutant == *name) {
                self.text
                    .push_str(&body[done..part.range.start - first].concat());
                self.text.push_str(&part.text);
                done = part.range.end - first;
            }
            self.text.push_str(&body[done..].concat());
            let region = (begin..self.lines(), vec![(*name).to_owned()]);
            self.regions.push(region);
            self.text.push_str("}\n");
        }
        self.text
            .push_str(&format!("_ => {{\n{}}}\n}}\n", body.concat()));
        self.regions.insert(place, (begin..self.lines(), all));
    }

    fn lines(&self) -> usize {
        self.text.matches('\n').count()
    }

    /// The mutants in whose functions a line lies. Within the body of one mutant it is that one alone.
    pub(super) fn owners(&self, line: usize) -> &[String] {
        let mut regions = self.regions.iter().rev();
        let found = regions.find(|(range, _)| range.contains(&line));
        found.map_or(&[], |(_, names)| names)
    }
}

/// The changes of each function. Those of an inner function belong to the outermost changed function around it.
fn by_function(parts: Vec<Part<'_>>) -> BTreeMap<Function, Vec<Part<'_>>> {
    let functions: Vec<_> = parts.iter().map(|part| part.function).collect();
    let mut by_function: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for part in parts {
        let around = functions
            .iter()
            .filter(|function| function.holds(&part.function))
            .min();
        let function = around.copied().unwrap_or(part.function);
        by_function.entry(function).or_default().push(part);
    }
    by_function
}
