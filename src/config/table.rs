//! A row of the table of settings, and the macro that generates the configuration from the rows.

/// The default of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// This value.
    Fixed(&'static str),
    /// A value that depends on other settings or on the user of the program; this describes it.
    Computed(&'static str),
}

/// The tables of a file that have settings, which begin with the same word.
pub(super) const TABLES: &[&str] = &["prices"];

/// One setting: a row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The heading under which it is listed.
    pub section: &'static str,
    /// Its name, which is its TOML key.
    pub key: &'static str,
    /// The kind of its values, in one word.
    pub kind: &'static str,
    /// An example of a correct value, without choices and bounds.
    pub(super) example: &'static str,
    /// The values it takes, if they can be listed.
    pub choices: &'static [&'static str],
    /// Whether it takes several values: separated by commas, or as an array in the file.
    pub is_list: bool,
    /// Its default.
    pub default: Default,
    /// Lowest and highest value, if it has bounds.
    pub bounds: Option<(&'static str, &'static str)>,
    /// Its meaning.
    pub(super) documentation: &'static [&'static str],
}

impl Setting {
    /// The setting with this key.
    pub fn find(key: &str) -> Option<&'static Setting> {
        super::SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Whether each export may override it.
    pub fn is_of_exports(&self) -> bool {
        super::exports::OWN.contains(&self.key)
    }

    /// Whether SIGHUP changes it in a running gateway.
    pub fn takes_effect_at_once(&self) -> bool {
        let prefixes = ["tls_", "admin_tls_"];
        self.is_of_exports()
            || prefixes.iter().any(|prefix| self.key.starts_with(prefix))
            || [
                "admin_hosts",
                "admin_token",
                "log_level",
                "shutdown_limit",
                "slow_call",
                "snapshot_schedule",
            ]
            .contains(&self.key)
    }

    /// The table of the file in which it is, if it is in one: `prices_reads` is `reads` below `[prices]`.
    pub fn table(&self) -> Option<&'static str> {
        let (table, _) = self.key.split_once('_')?;
        TABLES.contains(&table).then_some(table)
    }

    /// Its key in a file, with that of its table: `prices.reads`.
    pub fn file_key(&self) -> String {
        match self.table() {
            Some(_) => self.key.replacen('_', ".", 1),
            None => self.key.to_owned(),
        }
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

    /// Its meaning, as one paragraph.
    pub fn meaning(&self) -> String {
        let lines: Vec<_> = self.documentation.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }

    /// The type of its values, in short: `size, 1MiB to 1GiB`, or the words to choose from.
    pub fn type_text(&self) -> String {
        self.with_choices_and_bounds(self.kind)
    }

    /// The form of a correct value, for errors: `a size such as 64MiB, 1MiB to 1GiB`.
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

    /// The default as shown in tables.
    pub fn default_text(&self) -> &'static str {
        match self.default {
            Default::Fixed(text) | Default::Computed(text) => text,
        }
    }
}

/// Generates the list of [`Setting`]s, the struct `Config` and the code that reads and shows it from one list of
/// rows. The doc comment of a row is the documentation of the field, the help of the flag and the text in
/// docs/settings.md.
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

        /// The effective configuration: every value parsed, within its bounds, and consistent with the others.
        #[derive(Clone, Debug)]
        pub struct Config {
            $($(
                $(#[doc = $documentation])+
                pub $key: $kind,
            )+)+
            /// The directories that clients may mount; at least one.
            pub exports: Vec<Export>,
            sources: BTreeMap<&'static str, Source>,
        }

        impl Config {
            /// Reads every value; adds all errors to `errors`, and returns nothing if there were any.
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

            /// The source of a setting's value.
            pub fn source(&self, key: &str) -> Source {
                self.sources.get(key).cloned().unwrap_or(Source::Default)
            }

            /// The value of a setting, in the form of a file.
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
