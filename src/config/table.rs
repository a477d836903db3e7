//! What one row of the table of settings is, and the macro that makes everything from the rows.

/// What a setting is when nobody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// This value.
    Fixed(&'static str),
    /// A value that depends on others or on who runs the program; this says how.
    Computed(&'static str),
}

/// One setting: a row of the table.
#[derive(Debug)]
pub struct Setting {
    /// Under which heading it is listed.
    pub section: &'static str,
    /// Its name, which is its TOML key.
    pub key: &'static str,
    /// What kind of value it takes, in one word.
    pub kind: &'static str,
    /// What a right value looks like, without choices and bounds.
    pub(super) example: &'static str,
    /// The values it takes, if they can be listed.
    pub choices: &'static [&'static str],
    /// Whether it takes several values: with commas between them, or as an array in the file.
    pub is_list: bool,
    /// What it is when nobody sets it.
    pub default: Default,
    /// Lowest and highest value, if it has bounds.
    pub bounds: Option<(&'static str, &'static str)>,
    /// What it does.
    pub(super) documentation: &'static [&'static str],
}

impl Setting {
    /// The setting with this key.
    pub fn find(key: &str) -> Option<&'static Setting> {
        super::SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Whether each export may have its own value of it.
    pub fn is_of_exports(&self) -> bool {
        super::exports::OWN.contains(&self.key)
    }

    /// Its flag, without the dashes in front: `log-limit`.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// Its environment variable: `FOREBAY_LOG_LIMIT`.
    pub fn variable(&self) -> String {
        format!(
            "{}{}",
            super::VARIABLE_PREFIX,
            self.key.to_ascii_uppercase()
        )
    }

    /// What it does, as one paragraph.
    pub fn meaning(&self) -> String {
        let lines: Vec<_> = self.documentation.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }

    /// What values it takes, in short: `size, 1MiB to 1GiB`, or the words to choose from.
    pub fn type_text(&self) -> String {
        self.with_choices_and_bounds(self.kind)
    }

    /// What a right value looks like, for errors: `a size such as 64MiB, 1MiB to 1GiB`.
    pub fn expected(&self) -> String {
        self.with_choices_and_bounds(self.example)
    }

    fn with_choices_and_bounds(&self, kind: &str) -> String {
        let kind = match self.choices {
            [] => kind.to_owned(),
            [words @ .., last] => format!("{} or {last}", words.join(", ")),
        };
        match self.bounds {
            Some((low, high)) => format!("{kind}, {low} to {high}"),
            None => kind,
        }
    }

    /// The default as it is written in tables.
    pub fn default_text(&self) -> &'static str {
        match self.default {
            Default::Fixed(text) | Default::Computed(text) => text,
        }
    }
}

/// Makes the list of [`Setting`]s, the struct `Config` and the code that reads and shows it from
/// one list of rows. The documentation of a row is the documentation of the field, the help of the
/// flag and the text in docs/settings.md.
macro_rules! settings {
    ($(
        $section:literal {
            $(
                $(#[doc = $documentation:literal])+
                $key:ident: $kind:ty = $default:expr $(, $low:literal to $high:literal)?;
            )+
        }
    )+) => {
        /// The table: all settings, in the order in which they are shown.
        pub const SETTINGS: &[Setting] = &[$($(
            Setting {
                section: $section,
                key: stringify!($key),
                kind: <$kind as Value>::KIND,
                example: <$kind as Value>::EXAMPLE,
                choices: <$kind as Value>::CHOICES,
                is_list: <$kind as Value>::IS_LIST,
                default: $default,
                bounds: settings!(@bounds $($low, $high)?),
                documentation: &[$($documentation),+],
            },
        )+)+];

        /// The effective configuration: every value read, within its bounds, and fitting the
        /// others.
        #[derive(Clone, Debug)]
        pub struct Config {
            $($(
                $(#[doc = $documentation])+
                pub $key: $kind,
            )+)+
            /// What clients may mount; at least one directory.
            pub exports: Vec<Export>,
            sources: BTreeMap<&'static str, Source>,
        }

        impl Config {
            /// Reads every value; pushes what is wrong, and gives nothing if anything was.
            pub(super) fn read(raw: &Raw, errors: &mut Vec<ConfigError>) -> Option<Config> {
                $($(
                    let $key = raw.read::<$kind>(
                        stringify!($key),
                        settings!(@check $($low, $high)?),
                        errors,
                    );
                )+)+
                let mut config = Config {
                    $($($key: $key?,)+)+
                    exports: Vec::new(),
                    sources: raw.sources(),
                };
                config.exports = exports::read(&raw.exports, &config, errors);
                Some(config)
            }

            /// Where the value of a setting came from.
            pub fn source(&self, key: &str) -> Source {
                self.sources.get(key).cloned().unwrap_or(Source::Default)
            }

            /// The value of a setting, as it is written in a file.
            pub(super) fn written(&self, key: &str) -> Option<Written> {
                match key {
                    $($(stringify!($key) => Some(self.$key.write()),)+)+
                    _ => None,
                }
            }
        }
    };
    (@bounds) => { None };
    (@bounds $low:literal, $high:literal) => { Some(($low, $high)) };
    (@check) => { Ok };
    (@check $low:literal, $high:literal) => { |value| within(value, $low, $high) };
}

pub(super) use settings;
