//! Results of criterion: a folder for each benchmark, with its name and its samples.
//!
//! ```text
//! target/criterion/GROUP/FUNCTION/new/benchmark.json    full_id, throughput
//!                                     sample.json       iters, times: of each sample, in nanoseconds
//! ```
//!
//! Criterion's own `estimates.json` has the same median. Its interval shows how well the median is known; our quartiles
//! show the spread of the samples, as in all our tables.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Median, Round};

/// All benchmarks of a folder, by name.
#[derive(Clone, Debug, Default)]
pub struct Samples(BTreeMap<String, Bench>);

/// A benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Bench {
    /// Time of an iteration in nanoseconds, over the samples.
    pub time_ns: Median,
    /// Bytes that an iteration moves, if the benchmark states them.
    pub bytes: Option<u64>,
    /// Operations in an iteration, if the benchmark states them.
    pub elements: Option<u64>,
}

/// Why criterion's results cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// A file or folder cannot be read.
    #[error("{0} cannot be read; `cargo bench` makes it")]
    Io(PathBuf, #[source] io::Error),
    /// A file has not the format of criterion's files.
    #[error("{0} is not in the format of criterion 0.8: {1}")]
    Format(PathBuf, String),
}

impl Samples {
    /// Reads all results in a folder: `target/criterion`, or the value of `CRITERION_HOME`.
    pub fn read(folder: &Path) -> Result<Samples, SamplesError> {
        let mut samples = Samples::default();
        samples.gather(folder)?;
        Ok(samples)
    }

    fn gather(&mut self, folder: &Path) -> Result<(), SamplesError> {
        let failed = |error| SamplesError::Io(folder.to_owned(), error);
        for entry in folder.read_dir().map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.ends_with("new") && path.join("benchmark.json").is_file() {
                let (name, bench) = read_bench(&path)?;
                self.0.insert(name, bench);
            } else if path.is_dir() {
                self.gather(&path)?;
            }
        }
        Ok(())
    }

    /// The benchmark of this name, as `cargo bench` prints it.
    pub fn get(&self, name: &str) -> Option<&Bench> {
        self.0.get(name)
    }

    /// All benchmarks whose names begin with this, in order.
    pub fn beginning<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a Bench)> {
        let all = self.0.iter().map(|(name, bench)| (name.as_str(), bench));
        all.filter(move |(of, _)| of.starts_with(name))
    }

    /// The median times in nanoseconds, as one round.
    pub fn round(&self) -> Round {
        let mut round = Round::default();
        for (name, bench) in &self.0 {
            round.insert(name.as_str(), bench.time_ns.value);
        }
        round
    }
}

impl Bench {
    /// MB/s, of 1,000,000 bytes, if it moves bytes.
    pub fn megabytes_a_second(&self) -> Option<Median> {
        let bytes = self.bytes? as f64;
        // Bytes per nanosecond are GB/s.
        Some(self.time_ns.reversed(|time_ns| bytes / time_ns * 1e3))
    }
}

fn read_bench(folder: &Path) -> Result<(String, Bench), SamplesError> {
    let read = |file: &str| {
        let path = folder.join(file);
        let text = std::fs::read(&path).map_err(|error| SamplesError::Io(path.clone(), error))?;
        let value = serde_json::from_slice::<Value>(&text);
        value
            .map(|value| (path.clone(), value))
            .map_err(|error| SamplesError::Format(path, error.to_string()))
    };
    let (path, about) = read("benchmark.json")?;
    let lacks = |path: &Path, what: &str| {
        SamplesError::Format(path.to_owned(), format!("it has no usable {what:?}"))
    };
    let name = about["full_id"].as_str();
    let name = name.ok_or_else(|| lacks(&path, "full_id"))?.to_owned();
    let throughput = &about["throughput"];
    let (path, sample) = read("sample.json")?;
    let time_ns = Median::of(times(&sample).ok_or_else(|| lacks(&path, "iters, times"))?);
    let bench = Bench {
        time_ns,
        bytes: throughput["Bytes"].as_u64(),
        elements: throughput["Elements"].as_u64(),
    };
    Ok((name, bench))
}

/// Time of an iteration of each sample.
fn times(sample: &Value) -> Option<Vec<f64>> {
    let numbers = |key: &str| {
        let array = sample[key].as_array()?;
        array.iter().map(Value::as_f64).collect::<Option<Vec<_>>>()
    };
    let (iterations, times) = (numbers("iters")?, numbers("times")?);
    let usable = !times.is_empty()
        && times.len() == iterations.len()
        && iterations.iter().all(|count| *count >= 1.0);
    usable.then(|| {
        let pairs = times.iter().zip(iterations);
        pairs.map(|(time, count)| time / count).collect()
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes the results of a benchmark as criterion does.
    pub(crate) fn leave(folder: &Path, name: &str, throughput: &str, iters: &str, times: &str) {
        let folder = folder.join(name).join("new");
        std::fs::create_dir_all(&folder).unwrap();
        let about = format!(
            r#"{{"group_id":"g","function_id":null,"value_str":"4","throughput":{throughput},"full_id":"{name}","directory_name":"d","title":"t"}}"#
        );
        std::fs::write(folder.join("benchmark.json"), about).unwrap();
        let sample = format!(r#"{{"sampling_mode":"Linear","iters":[{iters}],"times":[{times}]}}"#);
        std::fs::write(folder.join("sample.json"), sample).unwrap();
    }

    #[test]
    fn a_sample_of_many_iterations_counts_as_the_time_of_one() {
        let folder = tempfile::tempdir().unwrap();
        leave(
            folder.path(),
            "write/4",
            r#"{"Bytes":4096}"#,
            "10.0,20.0,30.0",
            "10000.0,40000.0,90000.0",
        );
        leave(folder.path(), "dirty/1", "null", "1", "160");
        leave(folder.path(), "commit/16", r#"{"Elements":16}"#, "2", "4");
        let samples = Samples::read(folder.path()).unwrap();
        let write = samples.get("write/4").unwrap();
        assert_eq!(write.time_ns, Median::of([1000.0, 2000.0, 3000.0]));
        let rate = write.megabytes_a_second().unwrap();
        assert_eq!((rate.value, rate.high), (2048.0, 4096.0));
        assert_eq!(samples.get("dirty/1").unwrap().megabytes_a_second(), None);
        assert_eq!(samples.get("commit/16").unwrap().elements, Some(16));
        assert_eq!(samples.round().get("dirty/1"), Some(160.0));
        let names: Vec<_> = samples.beginning("d").map(|(name, _)| name).collect();
        assert_eq!(names, ["dirty/1"]);
    }

    #[test]
    fn older_results_that_criterion_keeps_beside_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        leave(folder.path(), "write/4", "null", "1", "160");
        let old = folder.path().join("write/4");
        std::fs::rename(old.join("new"), old.join("base")).unwrap();
        assert!(
            Samples::read(folder.path())
                .unwrap()
                .get("write/4")
                .is_none()
        );
    }

    #[test]
    fn what_is_not_criterions_is_refused_with_its_path() {
        for (iters, times) in [
            ("1", ""),
            ("1,2", "1"),
            ("0", "1"),
            (r#""x""#, "1"),
            ("1", ""),
        ] {
            let folder = tempfile::tempdir().unwrap();
            leave(folder.path(), "write/4", "null", iters, times);
            let error = Samples::read(folder.path()).unwrap_err().to_string();
            assert!(
                error.contains("write/4/new/sample.json is not in the format"),
                "{error}"
            );
        }
        let error = Samples::read(Path::new("/nonexistent/criterion")).unwrap_err();
        assert!(error.to_string().contains("`cargo bench` makes it"));
    }
}
