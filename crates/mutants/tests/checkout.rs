//! Checks that the mutants of this checkout fit its code, and that its documentation has the table of them. Whether the
//! suites catch them takes long, and is checked by `mutants run`.

use std::fs;
use std::path::Path;

use forebay_mutants::{Project, TABLE, table};

fn project() -> Project {
    Project::around(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn each_fits_the_code_as_it_is() {
    let project = project();
    let mutants = project.mutants().unwrap();
    assert!(mutants.len() >= 25, "{} are few", mutants.len());
    let misfits = project.misfits(&mutants).unwrap();
    assert!(misfits.is_empty(), "adapt these:\n{}", misfits.join("\n"));
}

#[test]
fn the_table_is_the_one_of_mutants_and_results() {
    let project = project();
    let (mutants, results) = (project.mutants().unwrap(), project.results().unwrap());
    let docs = fs::read_to_string(project.root().join("docs/mutants.md")).unwrap();
    let begin = format!("<!-- the output of {TABLE}: begin -->");
    let end = format!("<!-- the output of {TABLE}: end -->");
    let (_, rest) = docs.split_once(&begin).unwrap();
    let (written, _) = rest.split_once(&end).unwrap();
    assert!(
        written.trim() == table(&mutants, &results).trim(),
        "write the table: cargo run -p forebay-mutants -- table"
    );
    let mut current = results.clone();
    current.retain(&mutants);
    assert!(
        current == results,
        "results are of mutants or suites that are gone: cargo run -p forebay-mutants -- table"
    );
}
