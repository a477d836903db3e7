//! Levels of compression: one, or a range that the gateway chooses from.

use forebay_fs::Levels;

use super::{Value, Written};

impl Value for Levels {
    const KIND: &'static str = "level or range";
    const EXAMPLE: &'static str =
        "a level of zstd from 1 to 19, or two with `-` between them such as 1-9";

    fn read(text: &str) -> Result<Self, String> {
        let (lowest, highest) = text.split_once('-').unwrap_or((text, text));
        let level = |text: &str| {
            let text = text.trim();
            let level: Option<u8> = text.parse().ok();
            let level = level.filter(|level| (1..=Levels::HIGHEST).contains(level));
            level.ok_or_else(|| format!("`{text}` is no level"))
        };
        Levels::new(level(lowest)?, level(highest)?)
            .ok_or_else(|| "the first level is above the second".to_owned())
    }

    fn write(&self) -> Written {
        match self.lowest() == self.highest() {
            true => Written::Number(self.lowest().into()),
            false => Written::Text(self.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_one_or_a_range() {
        for (text, lowest, highest) in [("3", 3, 3), (" 1 - 9 ", 1, 9), ("19-19", 19, 19)] {
            let levels = Levels::read(text).unwrap();
            assert_eq!(
                (levels.lowest(), levels.highest()),
                (lowest, highest),
                "{text}"
            );
            assert_eq!(Levels::read(&levels.write().to_string()), Ok(levels));
        }
        for (text, problem) in [
            ("0", "`0` is no level"),
            ("1-20", "`20` is no level"),
            ("9-1", "the first level is above the second"),
            ("-3", "`` is no level"),
            ("1-2-3", "`2-3` is no level"),
            ("fast", "`fast` is no level"),
        ] {
            assert_eq!(Levels::read(text), Err(problem.to_owned()), "{text}");
        }
    }
}
