//! The machine of a measurement.

use std::fmt;
use std::fs;
use std::thread;

use crate::date;

/// A machine, as far as a reader must know it to judge figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Number of processors that this process may use.
    pub processors: usize,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn this() -> Machine {
        let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            processor: processor(&about)
                .unwrap_or(std::env::consts::ARCH)
                .to_owned(),
            processors: thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// The sentence above a table: the machine, today's date, the command, and the kind of the figures.
    pub fn caption(&self, command: &str, figures: &str) -> String {
        format!("{self}; {}; `{command}`; {figures}.", date::today())
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.processors == 1 { "" } else { "s" };
        write!(
            f,
            "{}, {} processor{plural}",
            self.processor, self.processors
        )
    }
}

/// The name of the first processor in `/proc/cpuinfo`; on some machines it has none.
fn processor(about: &str) -> Option<&str> {
    let named = about.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then_some(value.trim())
    });
    named.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found_by_its_name() {
        let about = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC: 9B45\n\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(processor(about), Some("AMD EPYC: 9B45"));
        assert_eq!(processor("processor\t: 0\nBogoMIPS\t: 50.0\n"), None);
        assert_eq!(processor("model name\t:\n"), None);
    }

    #[test]
    fn a_caption_says_where_when_and_how() {
        let machine = Machine {
            processor: "AMD EPYC".to_owned(),
            processors: 2,
        };
        let caption = machine.caption("just bench", "medians of 9 rounds");
        let (before, after) = caption.split_once(&date::today()).unwrap();
        assert_eq!(before, "AMD EPYC, 2 processors; ");
        assert_eq!(after, "; `just bench`; medians of 9 rounds.");
    }
}
