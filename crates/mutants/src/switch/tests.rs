use std::path::Path;
use std::process::Command;

use super::*;

fn mutant(name: &str, edits: &str) -> Mutant {
    let text = format!("A defect.\ncaught by: x\n\n{edits}");
    Mutant::parse(name, &text).unwrap()
}

fn sources(text: &str) -> Sources {
    Sources::of(vec![("a.rs".into(), text.into())])
}

/// The switched file, without the indentation of its lines.
fn switched(source: &str, mutants: &[Mutant]) -> String {
    let all: Vec<_> = mutants.iter().collect();
    let switches = Switches::of(&all, &sources(source));
    assert_eq!(switches.alone, []);
    let [file] = &switches.files[..] else {
        panic!("{switches:?}")
    };
    let lines: Vec<_> = file.text.lines().map(str::trim).collect();
    lines.join("\n")
}

fn alone(source: &str, edits: &str) -> String {
    let mutant = mutant("m", edits);
    let switches = Switches::of(&[&mutant], &sources(source));
    assert_eq!(switches.files, []);
    switches.alone[0].1.to_string()
}

const CHOICE: &str = "\
static TRIED_MUTANT: ::std::sync::LazyLock<u32> = ::std::sync::LazyLock::new(|| {
match ::std::env::var(\"TRIED_MUTANT\").as_deref() {
";

#[test]
fn one_mutant_is_a_choice_between_two_bodies() {
    let source = "struct A;\n\nfn a() {\n    one();\n    two();\n}\n\nfn b() {}\n";
    let text = switched(source, &[mutant("no-one", "- one();\n")]);
    let expected = format!(
        "struct A;\n\nfn a() {{\n{CHOICE}\
         ::std::result::Result::Ok(\"no-one\") => 1,\n_ => 0,\n}}\n}});\n\
         match *TRIED_MUTANT {{\n1 => {{\ntwo();\n}}\n_ => {{\none();\ntwo();\n}}\n}}\n}}\n\nfn b() {{}}"
    );
    assert_eq!(text, expected);
}

#[test]
fn mutants_of_one_function_are_bodies_of_one_choice() {
    let source = "fn a() {\n    one();\n    two();\n}\n";
    let mutants = [
        mutant("y", "- two();\n+ 2;\n+ 3;\n"),
        mutant("x", "+ 1;\n  one();\n"),
    ];
    let text = switched(source, &mutants);
    assert_eq!(text.matches("static").count(), 1);
    assert!(
        text.contains("Ok(\"x\") => 1,\n::std::result::Result::Ok(\"y\") => 2,\n"),
        "{text}"
    );
    assert!(
        text.contains("1 => {\n1;\none();\ntwo();\n}\n2 => {\none();\n2;\n3;\n}\n"),
        "{text}"
    );
    assert!(text.contains("_ => {\none();\ntwo();\n}\n"), "{text}");
}

#[test]
fn edits_of_one_mutant_share_its_name() {
    let source = "fn a() {\n    one();\n    two();\n    three();\n}\n\nfn b() {\n    four();\n}\n";
    let edits = "- three();\n@@\n- one();\n+ 1;\n  two();\n@@\n- four();\n";
    let text = switched(source, &[mutant("x", edits)]);
    assert_eq!(text.matches("Ok(\"x\") => 1").count(), 2);
    assert!(text.contains("1 => {\n1;\ntwo();\n}\n"), "{text}");
    assert!(text.contains("1 => {\n}\n_ => {\nfour();\n}\n"), "{text}");
}

#[test]
fn an_inner_function_is_part_of_the_body_around_it() {
    let source = "fn a() {\n    fn b() {\n        two();\n    }\n    one();\n}\n";
    let text = switched(
        source,
        &[mutant("x", "- one();\n"), mutant("y", "- two();\n")],
    );
    assert_eq!(text.matches("static").count(), 1);
    let inner = switched(source, &[mutant("y", "- two();\n")]);
    assert!(
        inner.starts_with(&format!("fn a() {{\nfn b() {{\n{CHOICE}")),
        "{inner}"
    );
}

#[test]
fn kept_lines_may_be_outside_of_the_body() {
    let source = "fn a() {\n    one();\n}\n\nfn b() {\n    one();\n}\n";
    let text = switched(source, &[mutant("x", "  fn b() {\n- one();\n  }\n")]);
    assert!(
        text.starts_with("fn a() {\none();\n}\n\nfn b() {\nstatic"),
        "{text}"
    );
}

#[test]
fn a_change_outside_of_a_body_is_tried_alone() {
    let source = "const A: u32 = 1;\n\nfn a() -> u32 {\n    one()\n}\n\nconst fn b() {\n    two()\n}\n\nfn c() {\n    three();\n}\n";
    for (edits, expected) in [
        (
            "- const A: u32 = 1;\n",
            "a.rs:1 is not in the body of one function",
        ),
        (
            "- fn a() -> u32 {\n+ fn a() -> u64 {\n",
            "a.rs:3 is not in the body of one function",
        ),
        (
            "- one()\n- }\n+ 2 }\n",
            "a.rs:4 is not in the body of one function",
        ),
        (
            "+ /// A.\n  fn c() {\n",
            "a.rs:11 is not in the body of one function",
        ),
        (
            "- three();\n@@\n- const A: u32 = 1;\n",
            "a.rs:1 is not in the body of one function",
        ),
        ("- two()\n", "a.rs:8 is in a constant function"),
        ("- four();\n", "it does not fit the sources"),
    ] {
        assert_eq!(alone(source, edits), expected, "{edits}");
    }
}

#[test]
fn lines_belong_to_the_mutants_of_their_function() {
    let source = "fn a() {\n    one();\n}\n\nfn b() {\n    two();\n}\n";
    let mutants = [
        mutant("x", "- one();\n+ 1;\n"),
        mutant("y", "- one();\n+ 2;\n"),
    ];
    let switches = Switches::of(&mutants.iter().collect::<Vec<_>>(), &sources(source));
    let owners = |text: &str| {
        let line = switches.files[0]
            .text
            .lines()
            .position(|line| line.trim() == text)
            .unwrap();
        switches.owners(Path::new("a.rs"), line).to_vec()
    };
    assert_eq!(owners("1;"), ["x"]);
    assert_eq!(owners("2;"), ["y"]);
    assert_eq!(owners("one();"), ["x", "y"]);
    assert!(owners("fn a() {").is_empty() && owners("two();").is_empty());
    assert!(switches.owners(Path::new("b.rs"), 0).is_empty());
}

#[test]
fn a_compiled_program_has_the_defect_that_the_variable_names() {
    let source = "\
struct Sum<T>(T);

impl<T: Copy + Into<u32>> Sum<T> {
    fn of(&self, more: &[T]) -> Result<u32, String> {
        let mut sum: u32 = self.0.into();
        for one in more {
            sum += (*one).into();
        }
        if sum > 100 {
            return Err(\"too much\".to_owned());
        }
        Ok(sum)
    }
}

fn main() {
    let sum = Sum(1u8).of(&[2, 3]);
    println!(\"{sum:?}\");
}
";
    let mutants = [
        mutant("one-less", "- Ok(sum)\n+ Ok(sum - 1)\n"),
        mutant("refuses", "- if sum > 100 {\n+ if sum > 1 {\n"),
        mutant(
            "both",
            "- sum += (*one).into();\n+ sum += 2 * (*one).into();\n@@\n- let sum = Sum(1u8).of(&[2, 3]);\n+ let sum = Sum(0u8).of(&[2, 3]);\n",
        ),
    ];
    let switches = Switches::of(&mutants.iter().collect::<Vec<_>>(), &sources(source));
    assert_eq!(switches.alone, []);
    let folder = tempfile::tempdir().unwrap();
    let (path, program) = (folder.path().join("a.rs"), folder.path().join("a"));
    std::fs::write(&path, &switches.files[0].text).unwrap();
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut compiler = Command::new(compiler);
    let compiled = compiler
        .args(["--edition", "2024", "-o"])
        .arg(&program)
        .arg(&path)
        .status();
    assert!(compiled.unwrap().success());
    for (name, expected) in [
        ("", "Ok(6)\n"),
        ("of-another-package", "Ok(6)\n"),
        ("one-less", "Ok(5)\n"),
        ("refuses", "Err(\"too much\")\n"),
        ("both", "Ok(10)\n"),
    ] {
        let output = Command::new(&program).env(VARIABLE, name).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}");
    }
}
