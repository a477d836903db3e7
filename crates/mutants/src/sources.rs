//! The sources of the program, and the positions of lines in them.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The line of a file where a snippet begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The number of the file within [`Sources`].
    pub(crate) file: usize,
    /// The index of the line; the first is 0.
    pub(crate) line: usize,
}

/// The code of the program: all `*.rs` in `src` and `crates/*/src`, without `tests.rs` and folders `tests`.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<(PathBuf, String)>,
    /// Places of each line, by its text without indentation.
    places: HashMap<String, Vec<Place>>,
    /// Places of each word; computed when a snippet has no place.
    words: OnceCell<HashMap<String, Vec<Place>>>,
}

impl Sources {
    /// Reads the sources below a checkout's folder.
    pub fn load(root: &Path) -> io::Result<Sources> {
        let mut folders = vec![root.join("src")];
        for entry in fs::read_dir(root.join("crates"))? {
            folders.push(entry?.path().join("src"));
        }
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            if !folder.is_dir() {
                continue;
            }
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.file_stem().is_some_and(|stem| stem == "tests") {
                    continue;
                }
                if path.extension().is_some_and(|ending| ending == "rs") {
                    let text = fs::read_to_string(&path)?;
                    let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
                    files.push((path, text));
                } else {
                    folders.push(path);
                }
            }
        }
        Ok(Sources::of(files))
    }

    /// Sources with these names and contents.
    pub fn of(mut files: Vec<(PathBuf, String)>) -> Sources {
        files.sort();
        let mut places: HashMap<String, Vec<Place>> = HashMap::new();
        for (place, line) in lines(&files) {
            note(&mut places, line.trim(), place);
        }
        let words = OnceCell::new();
        Sources {
            files,
            places,
            words,
        }
    }

    /// The places where these lines, which have no indentation, are adjacent.
    pub fn find<'a>(&self, snippet: impl Iterator<Item = &'a str> + Clone) -> Vec<Place> {
        // The rarest line leaves the fewest places to check.
        let each = snippet.clone().enumerate();
        let rarest = each
            .map(|(offset, line)| (offset, self.places.get(line).map_or(&[][..], Vec::as_slice)))
            .min_by_key(|(_, places)| places.len());
        let Some((offset, places)) = rarest else {
            return Vec::new();
        };
        let begins = |place: &Place| {
            let line = place.line.checked_sub(offset)?;
            let mut lines = self.text(place.file).lines().skip(line);
            let fits = snippet
                .clone()
                .all(|line| lines.next().map(str::trim) == Some(line));
            fits.then_some(Place { line, ..*place })
        };
        places.iter().filter_map(begins).collect()
    }

    /// The path of a file, below the checkout's folder.
    pub(crate) fn path(&self, file: usize) -> &Path {
        &self.files[file].0
    }

    pub(crate) fn text(&self, file: usize) -> &str {
        &self.files[file].1
    }

    /// The contents of the file at a path.
    pub(crate) fn text_of(&self, path: &Path) -> Option<&str> {
        let (_, text) = self.files.iter().find(|(other, _)| other == path)?;
        Some(text)
    }

    /// The lines that contain a word.
    pub(crate) fn places_of_word(&self, word: &str) -> &[Place] {
        let words = self.words.get_or_init(|| {
            let mut known = HashMap::new();
            for (place, line) in lines(&self.files) {
                for word in words(line) {
                    note(&mut known, word, place);
                }
            }
            known
        });
        words.get(word).map_or(&[], Vec::as_slice)
    }

    /// A place as `path:line`, as compilers print it.
    pub fn shown(&self, place: Place) -> String {
        format!("{}:{}", self.path(place.file).display(), place.line + 1)
    }
}

/// The names, numbers and keywords of a line.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| !word.is_empty())
}

/// All lines of these files, with their places.
fn lines(files: &[(PathBuf, String)]) -> impl Iterator<Item = (Place, &str)> {
    let files = files.iter().enumerate();
    files.flat_map(|(file, (_, text))| {
        let lines = text.lines().enumerate();
        lines.map(move |(line, text)| (Place { file, line }, text))
    })
}

/// Records that a text occurs at a place; once for each place.
fn note(known: &mut HashMap<String, Vec<Place>>, text: &str, place: Place) {
    match known.get_mut(text) {
        Some(places) if places.last() == Some(&place) => {}
        Some(places) => places.push(place),
        None => _ = known.insert(text.to_owned(), vec![place]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(sources: &Sources, snippet: &[&str]) -> Vec<String> {
        let places = sources.find(snippet.iter().copied());
        places
            .into_iter()
            .map(|place| sources.shown(place))
            .collect()
    }

    #[test]
    fn lines_are_found_whatever_their_indentation() {
        let sources = Sources::of(vec![
            ("b.rs".into(), "mod x {\n    a();\n        b();\n}\n".into()),
            ("a.rs".into(), "a();\nc();\r\na();\nb();".into()),
        ]);
        assert_eq!(find(&sources, &["a();"]), ["a.rs:1", "a.rs:3", "b.rs:2"]);
        assert_eq!(find(&sources, &["a();", "b();"]), ["a.rs:3", "b.rs:2"]);
        assert_eq!(find(&sources, &["a();", "b();", "}"]), ["b.rs:2"]);
        assert_eq!(find(&sources, &["c();", "a();"]), ["a.rs:2"]);
    }

    #[test]
    fn parts_of_lines_and_ends_of_files_are_not_found() {
        let sources = Sources::of(vec![("a.rs".into(), "a();\nb();\n".into())]);
        assert!(find(&sources, &["a()"]).is_empty());
        assert!(find(&sources, &["b();", "a();"]).is_empty());
        assert!(find(&sources, &["b();", ""]).is_empty());
        assert!(find(&sources, &["c();", "a();"]).is_empty());
        assert!(find(&Sources::default(), &["a();"]).is_empty());
    }

    #[test]
    fn sources_are_the_code_of_the_program_alone() {
        let root = tempfile::tempdir().unwrap();
        for path in [
            "src/main.rs",
            "src/tests.rs",
            "src/deep/er/mod.rs",
            "src/deep/tests/one.rs",
            "src/notes.md",
            "crates/a/src/lib.rs",
            "crates/a/tests/all.rs",
            "crates/b/build.rs",
            "target/out.rs",
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "a();\n").unwrap();
        }
        let sources = Sources::load(root.path()).unwrap();
        assert_eq!(
            find(&sources, &["a();"]),
            [
                "crates/a/src/lib.rs:1",
                "src/deep/er/mod.rs:1",
                "src/main.rs:1"
            ]
        );
        assert!(Sources::load(&root.path().join("target")).is_err());
    }
}
