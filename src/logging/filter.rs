//! Which messages are logged, by their level and their target.

use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::config::{LOG_MODULES, LogLevel, LogLevels};

/// Least severe levels, by the beginning of targets.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Of targets that begin with none of those listed.
    others: LevelFilter,
    /// In an order that all filters have.
    listed: Vec<(&'static str, LevelFilter)>,
}

impl Filter {
    /// The filter for a setting.
    ///
    /// Libraries of third parties log less: up to `info` only their warnings and errors are shown, and messages that
    /// are only of use to their developers not before `debug`. The AWS SDK never logs more than `debug`: at `trace` it
    /// would print whole requests, and a request to KMS contains the volume key.
    pub(super) fn of(levels: &LogLevels) -> Filter {
        let (ours, others) = (of_ours(levels.all), of_others(levels.all));
        let module = |module: &'static crate::config::LogModule| {
            let level = match levels.of_module(module) {
                Some(own) => of_ours(own),
                None if module.is_ours() => ours,
                None => others,
            };
            (module.target, level)
        };
        let bounded = |(target, level): (&'static str, LevelFilter)| match target {
            "aws" => (target, level.min(LevelFilter::DEBUG)),
            _ => (target, level),
        };
        // All crates of the project begin with this, listed or not.
        let unlisted = ("forebay", ours);
        // A warning with the whole answer of a server, for each source of credentials that has none. The error in our own
        // message about it names all of them.
        let credentials = |aws: LevelFilter| match aws {
            LevelFilter::WARN => LevelFilter::ERROR,
            level => level,
        };
        let mut listed: Vec<_> = LOG_MODULES.iter().map(module).map(bounded).collect();
        listed.push(unlisted);
        let aws = listed.iter().find(|(target, _)| *target == "aws").copied();
        listed.extend(aws.map(|(_, aws)| ("aws_config::meta::credentials", credentials(aws))));
        Filter { others, listed }
    }

    /// What is kept as [events](super::Events), whatever is printed: warnings and errors, and from our own crates
    /// `info` as well.
    pub(super) fn of_events() -> Filter {
        Filter::of(&LogLevels::of(LogLevel::Info))
    }

    /// Everything that one of the two lets through.
    pub(super) fn or(&self, other: &Filter) -> Filter {
        let pairs = self.listed.iter().zip(&other.listed);
        Filter {
            others: self.others.max(other.others),
            listed: pairs
                .map(|(&(target, one), &(_, two))| (target, one.max(two)))
                .collect(),
        }
    }

    /// Targets are module paths and match by prefix; the longest prefix counts.
    pub(super) fn targets(&self) -> Targets {
        Targets::new()
            .with_default(self.others)
            .with_targets(self.listed.iter().copied())
    }
}

fn of_ours(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn of_others(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn | LogLevel::Info => LevelFilter::WARN,
        LogLevel::Debug => LevelFilter::INFO,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::config::Value;

    fn targets(levels: &str) -> Targets {
        Filter::of(&LogLevels::read(levels).unwrap()).targets()
    }

    #[test]
    fn libraries_say_less_than_the_program() {
        let targets = targets("info");
        assert!(targets.would_enable("forebay::serve", &Level::INFO));
        assert!(targets.would_enable("forebay_nfs::connection", &Level::INFO));
        assert!(targets.would_enable("forebay_of_tomorrow::part", &Level::INFO));
        assert!(!targets.would_enable("forebay_nfs::connection", &Level::DEBUG));
        assert!(targets.would_enable("slatedb::db", &Level::WARN));
        assert!(!targets.would_enable("slatedb::db", &Level::INFO));
        assert!(!targets.would_enable("foyer_memory::cache", &Level::INFO));
    }

    #[test]
    fn a_source_without_credentials_is_no_warning_of_its_own() {
        const CHAIN: &str = "aws_config::meta::credentials::chain";
        for (levels, is_printed) in [
            ("info", false),
            ("error", false),
            ("info,aws=warn", false),
            ("debug", true),
            ("info,aws=debug", true),
        ] {
            let targets = targets(levels);
            assert_eq!(
                targets.would_enable(CHAIN, &Level::WARN),
                is_printed,
                "{levels}"
            );
            assert!(targets.would_enable(CHAIN, &Level::ERROR), "{levels}");
            assert!(!targets.would_enable(CHAIN, &Level::TRACE), "{levels}");
            assert!(
                targets.would_enable("aws_config::profile", &Level::ERROR),
                "{levels}"
            );
        }
        assert!(targets("info").would_enable("aws_config::profile", &Level::WARN));
    }

    #[test]
    fn a_module_has_its_own_level_and_no_other_module_has_it() {
        let targets = targets("warn,fs=debug,slatedb=info,nfs=error");
        assert!(targets.would_enable("forebay_fs::open", &Level::DEBUG));
        assert!(!targets.would_enable("forebay_fs::open", &Level::TRACE));
        // It begins with the name of that one.
        assert!(!targets.would_enable("forebay_fsck::check", &Level::INFO));
        assert!(targets.would_enable("forebay_fsck::check", &Level::WARN));
        assert!(!targets.would_enable("forebay::serve", &Level::INFO));
        assert!(targets.would_enable("slatedb::db", &Level::INFO));
        assert!(targets.would_enable("forebay_nfs::server", &Level::ERROR));
        assert!(!targets.would_enable("forebay_nfs::server", &Level::WARN));
        let program = self::targets("error,program=trace");
        assert!(program.would_enable("forebay::serve", &Level::TRACE));
        assert!(!program.would_enable("forebay_fs::open", &Level::WARN));
    }

    #[test]
    fn requests_are_never_printed_since_one_has_the_volume_key() {
        for targets in [targets("trace"), targets("trace,aws=debug")] {
            assert!(targets.would_enable("slatedb::db", &Level::TRACE));
            for target in [
                "aws_sdk_kms::operation::encrypt",
                "aws_smithy_runtime::client::orchestrator",
            ] {
                assert!(targets.would_enable(target, &Level::DEBUG), "{target}");
                assert!(!targets.would_enable(target, &Level::TRACE), "{target}");
            }
        }
    }

    #[test]
    fn events_are_kept_whatever_is_printed() {
        let printed = Filter::of(&LogLevels::read("error,nfs=debug").unwrap());
        let both = printed.or(&Filter::of_events()).targets();
        assert!(both.would_enable("forebay::serve", &Level::INFO));
        assert!(!both.would_enable("forebay::serve", &Level::DEBUG));
        assert!(both.would_enable("forebay_nfs::server", &Level::DEBUG));
        assert!(both.would_enable("slatedb::db", &Level::WARN));
        assert!(!both.would_enable("aws_config::profile", &Level::INFO));
    }
}
