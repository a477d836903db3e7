//! Finds the place that is most similar to a snippet which no place has.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use crate::sources::{Place, Sources, words};

/// A word in more lines than this locates nothing.
const COMMON: usize = 2000;

/// Most stretches that are compared with a snippet line by line.
const CANDIDATES: usize = 100;

/// The most similar place in the sources, and its differences from the snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The place, as `path:line`.
    pub place: String,
    /// The lines of both in their order: lines of the snippet alone with `-`, lines of the source alone with `+`.
    pub differences: Vec<String>,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nearest { place, differences } = self;
        write!(f, "{place} (- the mutant, + the source)")?;
        differences
            .iter()
            .try_for_each(|line| write!(f, "\n    {line}"))
    }
}

impl Nearest {
    /// Of the stretches as long as the snippet that have most of its words, the one whose lines are most similar to
    /// those of the snippet. `None` if the snippet shares only common words with the sources.
    pub(crate) fn of<'a>(
        snippet: impl Iterator<Item = &'a str>,
        sources: &Sources,
    ) -> Option<Nearest> {
        let snippet: Vec<_> = snippet.collect();
        let mut best: Option<(f64, Place)> = None;
        for place in candidates(&snippet, sources) {
            let source = stretch(place, &snippet, sources);
            let alike: f64 = snippet
                .iter()
                .zip(source)
                .map(|(a, b)| likeness(a, b))
                .sum();
            if best.is_none_or(|(most, _)| alike > most) {
                best = Some((alike, place));
            }
        }
        let (_, place) = best?;
        let source: Vec<_> = stretch(place, &snippet, sources).collect();
        Some(Nearest {
            place: sources.shown(place),
            differences: differences(&snippet, &source),
        })
    }
}

/// As many lines from a place on as the snippet has.
fn stretch<'s>(
    place: Place,
    snippet: &[&str],
    sources: &'s Sources,
) -> impl Iterator<Item = &'s str> {
    let lines = sources.text(place.file).lines().skip(place.line);
    lines.take(snippet.len()).map(str::trim)
}

/// Possible places of a snippet: around the stretches with most of its words, of which rare ones count more.
fn candidates(snippet: &[&str], sources: &Sources) -> BTreeSet<Place> {
    let wanted: HashSet<_> = snippet.iter().flat_map(|line| words(line)).collect();
    let mut hits = Vec::new();
    for word in wanted {
        let places = sources.places_of_word(word);
        if places.len() <= COMMON {
            let weight = 1.0 / places.len() as f64;
            hits.extend(places.iter().map(|place| (*place, word, weight)));
        }
    }
    hits.sort_unstable_by_key(|(place, word, _)| (*place, *word));

    let mut stretches: Vec<(f64, Place)> = Vec::new();
    for (begin, (first, ..)) in hits.iter().enumerate() {
        // The first of several hits in a line includes all of them.
        if begin > 0 && hits[begin - 1].0 == *first {
            continue;
        }
        let end = first.line + snippet.len();
        let mut found = HashSet::new();
        let within = hits[begin..]
            .iter()
            .take_while(|(place, ..)| place.file == first.file && place.line < end)
            .filter(|(_, word, _)| found.insert(*word));
        let weight = within.map(|(.., weight)| weight).sum();
        stretches.push((weight, *first));
    }
    stretches.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    stretches.truncate(CANDIDATES);

    // The first line with a word need not be the first line of the snippet.
    let reach = snippet.len() - 1;
    let around = |(_, Place { file, line }): (f64, Place)| {
        (line.saturating_sub(reach)..=line + reach).map(move |line| Place { file, line })
    };
    stretches.into_iter().flat_map(around).collect()
}

/// Similarity of two lines, from 0 to 1, by their words and their other characters.
fn likeness(a: &str, b: &str) -> f64 {
    let tokens = |line| {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let signs = str::matches(line, |character: char| character.is_ascii_punctuation());
        for token in words(line).chain(signs.filter(|sign| *sign != "_")) {
            *counts.entry(token).or_default() += 1;
        }
        counts
    };
    let (a, b) = (tokens(a), tokens(b));
    let both: usize = a
        .iter()
        .map(|(token, count)| b.get(token).map_or(0, |other| *count.min(other)))
        .sum();
    let all: usize = a.values().chain(b.values()).sum();
    2.0 * both as f64 / all.max(1) as f64
}

/// The lines that only one of two texts has, by a longest common subsequence.
fn differences(snippet: &[&str], source: &[&str]) -> Vec<String> {
    // common[a][b]: how many lines the rests from a and b on have in common.
    let mut common = vec![vec![0; source.len() + 1]; snippet.len() + 1];
    for a in (0..snippet.len()).rev() {
        for b in (0..source.len()).rev() {
            common[a][b] = match snippet[a] == source[b] {
                true => common[a + 1][b + 1] + 1,
                false => common[a + 1][b].max(common[a][b + 1]),
            };
        }
    }
    let (mut a, mut b, mut lines) = (0, 0, Vec::new());
    while a < snippet.len() || b < source.len() {
        if a < snippet.len() && b < source.len() && snippet[a] == source[b] {
            (a, b) = (a + 1, b + 1);
        } else if b == source.len() || a < snippet.len() && common[a + 1][b] >= common[a][b + 1] {
            lines.push(format!("- {}", snippet[a]));
            a += 1;
        } else {
            lines.push(format!("+ {}", source[b]));
            b += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearest(snippet: &str, source: &str) -> Option<Nearest> {
        let files = vec![
            ("a.rs".into(), "fn main() {\n    other();\n}\n".into()),
            ("b.rs".into(), source.into()),
        ];
        Nearest::of(snippet.lines(), &Sources::of(files))
    }

    const SOURCE: &str = "\
fn flush(&self) {
    let end = self.end();
    self.file.sync(end)?;
    self.durable = end;
}
";

    #[test]
    fn the_place_with_most_of_its_words_is_found() {
        let found = nearest("self.file.sync_all(end)?;\nself.durable = end;", SOURCE).unwrap();
        assert_eq!(found.place, "b.rs:3");
        assert_eq!(
            found.differences,
            ["- self.file.sync_all(end)?;", "+ self.file.sync(end)?;"]
        );
        assert_eq!(
            found.to_string(),
            "b.rs:3 (- the mutant, + the source)\n    - self.file.sync_all(end)?;\n    + self.file.sync(end)?;"
        );
    }

    #[test]
    fn a_snippet_whose_first_line_is_unknown_begins_where_it_would() {
        let found = nearest("x();\nself.file.sync(end)?;\nself.durable = end;", SOURCE).unwrap();
        assert_eq!(found.place, "b.rs:2");
        assert_eq!(found.differences, ["- x();", "+ let end = self.end();"]);
    }

    #[test]
    fn rare_words_count_more_than_frequent_ones() {
        let many = "self.end();\n".repeat(300);
        let found = nearest("self.file.flush(end)?;", &format!("{many}{SOURCE}")).unwrap();
        assert_eq!(found.place, "b.rs:303");
    }

    #[test]
    fn of_places_with_the_same_words_the_most_similar_is_found() {
        let source = format!("end(durable, sync, file, &self);\n{SOURCE}");
        let found = nearest("let end = self.end()?;", &source).unwrap();
        assert_eq!(found.place, "b.rs:3");
    }

    #[test]
    fn what_has_no_word_of_the_sources_is_near_to_nothing() {
        assert_eq!(nearest("unheard(of);\n}", SOURCE), None);
        assert_eq!(nearest("x", ""), None);
    }

    #[test]
    fn the_end_of_a_file_is_a_place() {
        let found = nearest("self.durable = start;\n}\n}", SOURCE).unwrap();
        assert_eq!(found.place, "b.rs:4");
        assert_eq!(found.differences.len(), 3);
    }
}
