//! The sequence of a run: creates a folder of its own, does one measurement after the other, and removes everything.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::mount::Mount;
use super::report::{Latencies, Line, Report};
use super::steps::{Files, Large};
use super::work::{Work, failed};
use super::{BenchError, Interrupt, Plan};

/// A folder that is removed with its content when it is dropped.
struct Workspace(PathBuf);

impl Workspace {
    fn new(folder: &Path) -> Result<Workspace, BenchError> {
        let path = folder.join(format!("forebay-bench-{}", std::process::id()));
        // An existing folder is an error: it may belong to someone else.
        fs::create_dir(&path).map_err(failed(format!("cannot make {}", path.display())))?;
        Ok(Workspace(path))
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        let path = std::mem::take(&mut self.0);
        fs::remove_dir_all(&path).map_err(failed(format!("cannot remove {}", path.display())))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // After an error, which is reported to the user.
            let _ = self.remove();
        }
    }
}

struct Run<'a, P> {
    interrupt: &'a Interrupt,
    progress: P,
    lines: Vec<Line>,
}

impl<P: FnMut(&str)> Run<'_, P> {
    /// Measures one step. A step may end with a flush, which is part of its time, but not an operation.
    fn measure(
        &mut self,
        what: &str,
        step: impl FnOnce(&Interrupt) -> Result<Work, BenchError>,
    ) -> Result<(), BenchError> {
        (self.progress)(what);
        let began = Instant::now();
        let work = step(self.interrupt)?;
        self.lines.push(Line {
            what: what.to_owned(),
            operations: work.times.len() as u64,
            bytes: work.bytes,
            seconds: began.elapsed().as_secs_f64(),
            latency: Latencies::of(work.times),
        });
        Ok(())
    }
}

pub(super) fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    progress: impl FnMut(&str),
) -> Result<Report, BenchError> {
    let folder = fs::canonicalize(&plan.folder)
        .map_err(failed(format!("cannot use {}", plan.folder.display())))?;
    let place = Mount::of(&folder);
    let mut workspace = Workspace::new(&folder)?;
    let mut run = Run {
        interrupt,
        progress,
        lines: Vec::new(),
    };

    let mut large = Large::create(&workspace.0, plan.file_bytes)?;
    run.measure("sequential write, 1 MiB", |i| large.write(i))?;
    large.forget()?;
    run.measure("sequential read, 1 MiB", |i| large.read(i))?;
    run.measure("random write, 4 KiB", |i| large.write_randomly(i))?;
    large.forget()?;
    run.measure("random read, 4 KiB", |i| large.read_randomly(i, 1))?;
    if plan.parallel > 1 {
        large.forget()?;
        let what = format!("random read, 4 KiB, {} threads", plan.parallel);
        run.measure(&what, |i| large.read_randomly(i, plan.parallel))?;
    }
    run.measure("append 4 KiB and fdatasync", |i| large.append_stable(i))?;
    drop(large);

    let threads = plan.parallel;
    let mut files = Files::new(&workspace.0, "small", plan.files)?;
    run.measure("create 4 KiB files, fsync each", |i| files.create(i, 1))?;
    let what = |what: &str| match threads {
        1 => what.to_owned(),
        _ => format!("{what}, {threads} threads"),
    };
    if threads > 1 {
        files = Files::new(&workspace.0, "parallel", plan.files)?;
        let what = what("create 4 KiB files, fsync each");
        run.measure(&what, |i| files.create(i, threads))?;
    }
    run.measure("list with attributes (one operation)", |i| files.list(i))?;
    run.measure(&what("stat"), |i| files.stat(i, threads))?;
    files.forget()?;
    run.measure(&what("open, read 4 KiB, close"), |i| files.read(i, threads))?;
    run.measure(&what("rename"), |i| files.rename(i, threads))?;
    run.measure(&what("remove"), |i| files.remove(i, threads))?;

    (run.progress)("removing the remaining files");
    workspace.remove()?;
    Ok(Report {
        place,
        file_bytes: plan.file_bytes,
        files: plan.files,
        parallel: plan.parallel,
        lines: run.lines,
    })
}
