//! Tests of the command line.

use clap::error::ErrorKind;

use super::*;
use crate::admin::QuotaLimit;

fn parse_line(line: &str) -> Result<(Request, Inputs), clap::Error> {
    let environment = Inputs {
        flags: Vec::new(),
        file: None,
        variables: Vec::new(),
        system_file: "/nonexistent".into(),
        is_root: false,
    };
    parse(line.split_whitespace().map(OsString::from), environment)
}

#[test]
fn the_command_line_is_sound() {
    command().debug_assert();
}

#[test]
fn every_command_that_reads_the_configuration_takes_every_setting() {
    for name in [
        "serve", "format", "config", "flush", "status", "exports", "events", "top", "fsck", "gc",
    ] {
        for setting in SETTINGS {
            let line = format!("forebay {name} --{} x", setting.flag());
            let (_, inputs) = parse_line(&line).unwrap();
            assert_eq!(inputs.flags, [(setting.key, "x".to_owned())], "{line}");
        }
    }
}

/// Number of lines of a help text on a screen of 100 columns.
fn lines(text: &str) -> usize {
    text.lines()
        .map(|line| line.len().div_ceil(100).max(1))
        .sum()
}

fn help(line: &str) -> String {
    let error = parse_line(line).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{line}");
    error.to_string()
}

#[test]
fn the_help_of_every_command_fits_a_screen() {
    fn names(command: &Command, above: &str, all: &mut Vec<String>) {
        all.push(above.to_owned());
        for command in command.get_subcommands() {
            names(command, &format!("{above} {}", command.get_name()), all);
        }
    }
    let mut all = Vec::new();
    names(&command(), "forebay", &mut all);
    for name in all {
        let help = help(&format!("{name} --help"));
        assert!(lines(&help) <= 40, "{name}: {} lines: {help}", lines(&help));
    }
}

#[test]
fn the_flags_of_settings_are_printed_when_they_are_asked_for() {
    for name in ["serve", "status", "log list", "quota set", "log forget"] {
        let own = help(&format!("forebay {name} --help"));
        assert!(
            own.contains("--help-settings") && own.contains("--data-dir"),
            "{own}"
        );
        assert!(!own.contains("--pack-bytes"), "{own}");
        let all = help(&format!("forebay {name} --help-settings --json"));
        for setting in SETTINGS {
            assert!(
                all.contains(&format!("--{} ", setting.flag())),
                "{name}: {}",
                setting.key
            );
        }
        assert!(!all.contains("--json"), "{all}");
    }
}

#[test]
fn a_new_volume_is_asked_for() {
    let request = |line| parse_line(line).unwrap().0;
    let new = NewVolume::Asked;
    assert_eq!(request("forebay serve --create"), Request::Serve { new });
    let new = NewVolume::NotAsked;
    assert_eq!(request("forebay serve"), Request::Serve { new });
}

#[test]
fn commands_have_their_own_flags() {
    let (request, inputs) = parse_line("forebay flush --timeout 1m30s --config /x").unwrap();
    assert_eq!(
        request,
        Request::Flush {
            path: None,
            timeout: Some(Duration::from_secs(90))
        }
    );
    assert_eq!(inputs.file, Some("/x".into()));
    let request = |line| parse_line(line).unwrap().0;
    let flush = |path| Request::Flush {
        path,
        timeout: None,
    };
    let path = || VolumePath(b"/a".to_vec());
    assert_eq!(request("forebay flush"), flush(None));
    assert_eq!(request("forebay flush /a"), flush(Some(path())));
    let (path, json) = (path(), true);
    assert_eq!(
        request("forebay where /a --json"),
        Request::Where { path, json }
    );
    assert!(parse_line("forebay where").is_err());
    assert_eq!(
        request("forebay status --json"),
        Request::Status { json: true }
    );
    assert_eq!(request("forebay status --check"), Request::Check);
    assert!(parse_line("forebay status --check --json").is_err());
    assert_eq!(
        request("forebay exports --json"),
        Request::Exports { json: true }
    );
    assert_eq!(
        request("forebay config --markdown"),
        Request::Config(ConfigForm::Markdown)
    );
    assert_eq!(request("forebay version"), Request::Version);
    assert_eq!(request("forebay gc"), Request::Gc(GcRequest::default()));
    assert_eq!(
        request("forebay gc --delete --grace 2h --no-wait --quiet --no-pin --json"),
        Request::Gc(GcRequest {
            delete: true,
            grace: Duration::from_secs(7200),
            no_wait: true,
            quiet: true,
            no_pin: true,
            json: true
        })
    );
    assert_eq!(
        request("forebay log show epoch-3 --from 4096 --json"),
        Request::Log(LogRequest::Show {
            label: "epoch-3".into(),
            from: Some(4096),
            json: true
        })
    );
    assert_eq!(
        request("forebay log salvage epoch-3 --to /x --ranges-only --data-dir /y"),
        Request::Log(LogRequest::Salvage {
            label: "epoch-3".into(),
            to: "/x".into(),
            ranges_only: true
        })
    );
    assert_eq!(
        request("forebay log forget epoch-3"),
        Request::Log(LogRequest::Forget {
            label: "epoch-3".into(),
            force: false
        })
    );
    assert_eq!(
        request("forebay log forget --all-salvaged"),
        Request::Log(LogRequest::ForgetSalvaged)
    );
    for wrong in ["", " epoch-3 --all-salvaged", " --force --all-salvaged"] {
        let error = parse_line(&format!("forebay log forget{wrong}")).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{wrong}");
    }
    let (_, inputs) = parse_line("forebay log list --data-dir /y").unwrap();
    assert_eq!(inputs.flags, [("data_dir", "/y".to_owned())]);
}

#[test]
fn a_start_may_take_the_volume_over() {
    let (request, inputs) = parse_line("forebay serve --take-over").unwrap();
    assert!(matches!(request, Request::Serve { .. }));
    assert_eq!(inputs.flags, [("takeover", "allow".to_owned())]);
    let error = parse_line("forebay serve --take-over --takeover refuse").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
    let error = parse_line("forebay flush --take-over").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownArgument);
}

#[test]
fn quotas_are_set_by_size_and_number() {
    let request = |line| match parse_line(line).unwrap() {
        (Request::Quota { request, json }, _) => (request, json),
        (other, _) => panic!("{other:?}"),
    };
    let set = QuotaRequest::Set {
        path: "/home/ann".to_owned(),
        bytes: QuotaLimit::To(10 << 30),
        files: QuotaLimit::Keep,
    };
    let line = "forebay quota set /home/ann --bytes 10GiB --json --data-dir /y";
    assert_eq!(request(line), (set, true));
    let set = QuotaRequest::Set {
        path: "/a".to_owned(),
        bytes: QuotaLimit::None,
        files: QuotaLimit::To(7),
    };
    let line = "forebay quota set /a --bytes none --files 7";
    assert_eq!(request(line), (set, false));
    assert_eq!(request("forebay quota list"), (QuotaRequest::List, false));
    for line in [
        "forebay quota set /a",
        "forebay quota set --bytes 1MiB",
        "forebay quota set /a --bytes much",
        "forebay quota set /a --files -1",
        "forebay quota show",
    ] {
        assert_eq!(parse_line(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn questions_about_the_past_are_for_the_bucket() {
    let request = |line| match parse_line(line).unwrap() {
        (Request::Past(request), _) => request,
        (other, _) => panic!("{other:?}"),
    };
    let asked = |question, json| PastRequest { question, json };
    let changes = |since: &str, until: Option<&str>| PastQuestion::Changes {
        since: since.to_owned(),
        until: until.map(str::to_owned),
    };
    let line = "forebay changes --since a --json --data-dir /y";
    assert_eq!(request(line), asked(changes("a", None), true));
    let line = "forebay changes --since 1 --until b";
    assert_eq!(request(line), asked(changes("1", Some("b")), false));
    let line = "forebay snapshot diff a b";
    assert_eq!(request(line), asked(changes("a", Some("b")), false));
    let path = VolumePath(b"/a".to_vec());
    let versions = asked(PastQuestion::Versions { path }, true);
    assert_eq!(request("forebay versions /a --json"), versions);
    let name = None;
    let all = asked(PastQuestion::Snapshots { name }, false);
    assert_eq!(request("forebay snapshot list --bucket"), all);
    let name = Some("a".to_owned());
    let one = asked(PastQuestion::Snapshots { name }, false);
    assert_eq!(request("forebay snapshot show a --bucket"), one);
    let (gateway, _) = parse_line("forebay snapshot list").unwrap();
    assert!(matches!(gateway, Request::Snapshot { .. }));
    for line in [
        "forebay changes",
        "forebay snapshot diff a",
        "forebay versions",
        "forebay snapshot create --bucket",
    ] {
        assert_eq!(parse_line(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn unknown_flags_name_the_nearest_right_one() {
    let error = parse_line("forebay serve --log-limt 1GiB").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownArgument);
    assert!(error.to_string().contains("--log-limit"), "{error}");
    let error = parse_line("forebay serv").unwrap_err();
    assert!(error.to_string().contains("serve"), "{error}");
}

#[test]
fn a_flag_that_is_given_twice_is_an_error() {
    let error = parse_line("forebay serve --log disk --log none").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
}

#[test]
fn no_command_is_help_and_an_error() {
    for line in ["forebay", "forebay log", "forebay log salvage epoch-1"] {
        let error = parse_line(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}
