//! The functions of a source that rustfmt has formatted.

/// The lines of a function, counted from zero. Its body lies between the lines `open` and `close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    /// The line that ends with the opening brace.
    pub(crate) open: usize,
    /// The line of the closing brace.
    pub(crate) close: usize,
    /// The compiler may evaluate it.
    pub(crate) is_const: bool,
}

impl Function {
    /// Whether a function lies in the body of this one.
    pub(crate) fn holds(&self, other: &Function) -> bool {
        self.open < other.open && other.close < self.close
    }
}

/// All functions that have a body of whole lines, in the order of their first lines. An inner function follows the one
/// that holds it.
pub(crate) fn functions(lines: &[&str]) -> Vec<Function> {
    let begun = |(index, line): (usize, &&str)| function(lines, index, is_const(line)?);
    lines.iter().enumerate().filter_map(begun).collect()
}

/// Whether a line begins a function, and whether that one is a `const fn`.
fn is_const(line: &str) -> Option<bool> {
    let mut rest = line.trim_start();
    let mut is_const = false;
    loop {
        if let Some(after) = rest.strip_prefix("pub(") {
            rest = after.split_once(')')?.1.trim_start();
            continue;
        }
        let (word, after) = rest.split_once(' ')?;
        match word {
            "fn" => return Some(is_const),
            "const" => is_const = true,
            "pub" | "async" | "unsafe" | "extern" | "\"C\"" | "default" => {}
            _ => return None,
        }
        rest = after;
    }
}

/// The function whose signature begins at a line.
fn function(lines: &[&str], first: usize, is_const: bool) -> Option<Function> {
    let indentation = indentation(lines[first]);
    let mut open = None;
    for (index, line) in lines.iter().enumerate().skip(first) {
        let code = line.trim();
        if code.is_empty() || self::indentation(line) > indentation {
            continue;
        }
        match open {
            None if code.ends_with('{') => open = Some(index),
            // The signature goes on: `) -> T`, `where`.
            None if !code.ends_with([';', '}']) => {}
            Some(open) if code == "}" => {
                return Some(Function {
                    open,
                    close: index,
                    is_const,
                });
            }
            _ => return None,
        }
    }
    None
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(usize, usize)> {
        let lines: Vec<_> = source.lines().collect();
        let all = functions(&lines).into_iter();
        all.map(|function| (function.open, function.close))
            .collect()
    }

    #[test]
    fn a_body_lies_between_the_braces_of_the_signature_and_the_end() {
        let source = "\
impl A {
    /// A fn in a comment.
    pub(crate) async fn a(&self) -> u32 {
        if b {
            c();
        }
    }

    unsafe extern \"C\" fn d<T>(
        e: T,
    ) -> T
    where
        T: F,
    {
        e
    }
}
";
        assert_eq!(found(source), [(2, 6), (13, 15)]);
    }

    #[test]
    fn an_inner_function_follows_the_one_around_it() {
        let source = "fn a() {\n    fn b() {\n        c();\n    }\n    b();\n}\n";
        assert_eq!(found(source), [(0, 5), (1, 3)]);
        let lines: Vec<_> = source.lines().collect();
        let all = functions(&lines);
        assert!(all[0].holds(&all[1]) && !all[1].holds(&all[0]) && !all[0].holds(&all[0]));
    }

    #[test]
    fn a_function_has_a_body_of_whole_lines() {
        assert_eq!(found("fn a();\nfn b() {}\nfn c() { d() }\n"), []);
        assert_eq!(
            found("trait T {\n    fn a(\n        &self,\n    );\n}\n"),
            []
        );
        assert_eq!(found("let a = fn_of(b);\nconst A: u32 = {\n};\n"), []);
        assert_eq!(found("fn a() {\n"), []);
    }

    #[test]
    fn text_at_the_margin_does_not_end_a_body() {
        assert_eq!(found("fn a() {\n    \"\nb\n\";\n}\n"), []);
        assert_eq!(found("    fn a() {\n        b(\"\n\");\n    }\n"), []);
    }

    #[test]
    fn constant_functions_are_known() {
        let lines = [
            "pub const fn a() {",
            "}",
            "const unsafe fn b() {",
            "}",
            "pub fn c() {",
            "}",
        ];
        let all: Vec<_> = functions(&lines).iter().map(|a| a.is_const).collect();
        assert_eq!(all, [true, true, false]);
    }
}
