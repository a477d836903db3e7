//! Causes that keep a gateway from starting: each gives one line with the remedy, and an exit code.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::support::{Place, refused, refused_with, run};

/// `serve` with the flags of a place, some of them replaced or added.
fn serve(place: &Place, more: &[&str]) -> Vec<String> {
    let replaced = |flag: &str| {
        let name = flag.split('=').next().unwrap_or_default().to_owned();
        more.iter()
            .any(|other| other.split('=').next() == Some(&name))
    };
    let mut arguments = ["serve", "--create"].map(str::to_owned).to_vec();
    arguments.extend(
        place
            .flags("data")
            .into_iter()
            .filter(|flag| !replaced(flag)),
    );
    arguments.extend(more.iter().map(|&flag| flag.to_owned()));
    arguments
}

#[test]
fn an_unknown_key_of_the_configuration_file_names_the_nearest_right_one() {
    let place = Place::new();
    let file = place.path("forebay.toml");
    fs::write(&file, "\nlog_limt = \"1GiB\"\n").unwrap();
    let refusal = refused(&serve(&place, &[&format!("--config={}", file.display())]));
    assert_eq!(refusal.code, 2);
    refusal.says(&[
        "forebay.toml",
        "unknown key `log_limt`",
        "did you mean `log_limit`?",
    ]);
    assert!(
        !place.data_dir().exists(),
        "something was made all the same"
    );
}

#[test]
fn an_unknown_variable_names_the_nearest_right_one() {
    let place = Place::new();
    let refusal = refused_with(&serve(&place, &[]), &[("FOREBAY_LISTN", "127.0.0.1:0")]);
    assert_eq!(refusal.code, 2);
    refusal.says(&["`FOREBAY_LISTN`", "did you mean `FOREBAY_LISTEN`?"]);
}

#[cfg(not(feature = "otlp"))]
#[test]
fn spans_of_a_program_without_them_say_how_to_build_it() {
    let refusal = refused(&serve(
        &Place::new(),
        &["--otlp-endpoint=http://127.0.0.1:4318"],
    ));
    assert_eq!(refusal.code, 2);
    refusal.says(&[
        "otlp_endpoint = http://127.0.0.1:4318",
        "cargo build --release --features otlp",
    ]);
}

#[test]
fn a_value_out_of_bounds_says_what_would_be_right() {
    let refusal = refused(&serve(&Place::new(), &["--memory-limit=1MiB"]));
    assert_eq!(refusal.code, 2);
    refusal.says(&["memory_limit", "1MiB", "64MiB"]);
}

#[test]
fn a_store_of_no_known_kind_says_which_there_are() {
    let refusal = refused(&serve(&Place::new(), &["--store=gopher://bucket"]));
    assert_eq!(refusal.code, 2);
    refusal.says(&["gopher://bucket", "s3://", "file://"]);
}

#[test]
fn a_folder_for_the_bucket_that_cannot_be_made_is_named() {
    let place = Place::new();
    fs::write(place.path("file"), "no folder").unwrap();
    let store = format!("--store=file://{}/bucket", place.path("file").display());
    let refusal = refused(&serve(&place, &[&store]));
    assert_eq!(refusal.code, 1);
    refusal.says(&["file/bucket", "cannot be used"]);
}

#[test]
#[ignore = "needs root, to start the program as another user"]
fn as_root_a_folder_for_the_bucket_without_permission_says_so() {
    let place = Place::new();
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(place.as_ref(), 0o755);
    fs::create_dir(place.data_dir()).unwrap();
    chown(place.data_dir(), Some(65534), Some(65534)).unwrap();
    fs::create_dir(place.bucket()).unwrap();
    open(&place.bucket(), 0o755);
    // Other users may have no access to the build's folder.
    let program = place.path("forebay");
    fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).unwrap();
    open(&program, 0o755);

    let output = Command::new(program)
        .args(serve(&place, &[]))
        .env_clear()
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("belongs to user 0") && stderr.contains("chown -R 65534"),
        "{stderr}"
    );
}

#[test]
fn a_store_with_foreign_objects_is_not_touched() {
    let place = Place::new();
    fs::create_dir(place.bucket()).unwrap();
    fs::write(place.bucket().join("holiday.jpg"), "not ours").unwrap();
    let refusal = refused(&serve(&place, &[]));
    assert_eq!(refusal.code, 1);
    refusal.says(&[
        "not a volume of Forebay",
        "holiday.jpg",
        "choose an empty prefix",
    ]);
    assert_eq!(fs::read_dir(place.bucket()).unwrap().count(), 1);
}

#[test]
fn format_refuses_a_volume_that_is_there() {
    let place = Place::new();
    place.serve().stop_cleanly();
    let mut arguments = vec!["format".to_owned()];
    arguments.extend(place.flags("other"));
    let refusal = refused(&arguments);
    assert_eq!(refusal.code, 1);
    refusal.says(&["there is a volume", "already", "another prefix"]);
}

#[test]
fn a_volume_newer_than_the_program_asks_for_a_newer_program() {
    let place = Place::new();
    fs::create_dir(place.bucket()).unwrap();
    let line = "{\"forebay\":\"volume\",\"format\":77,\"shape\":\"unheard of\"}\n";
    let descriptor = format!("{line}crc32 {:08x}\n", crc32(line.as_bytes()));
    fs::write(place.bucket().join("forebay.volume"), descriptor).unwrap();
    let refusal = refused(&serve(&place, &[]));
    assert_eq!(refusal.code, 1);
    refusal.says(&["has format 77", "use a newer Forebay"]);
}

#[test]
fn a_second_gateway_on_one_folder_is_refused_and_harms_nothing() {
    let place = Place::new();
    let gateway = place.serve();
    let refusal = refused(&serve(&place, &[]));
    assert_eq!(refusal.code, 1);
    refusal.says(&["another gateway uses", "--data-dir"]);
    gateway.client().put("file", b"still served");
    gateway.stop_cleanly();
}

#[test]
fn a_folder_with_the_log_of_another_volume_is_refused() {
    let place = Place::new();
    place.serve().stop_cleanly();
    let other = format!("--store=file://{}", place.path("other").display());
    let refusal = refused(&serve(&place, &[&other]));
    assert_eq!(refusal.code, 1);
    refusal.says(&["holds the log and state of volume", "data_dir of its own"]);
    // Its own volume is served as before.
    place.serve().stop_cleanly();
}

#[test]
fn an_address_that_the_machine_does_not_have_is_named() {
    // An address for documentation (RFC 5737).
    let flags = ["--listen=192.0.2.1:0", "--clients=192.0.2.0/24"];
    let refusal = refused(&serve(&Place::new(), &flags));
    assert_eq!(refusal.code, 1);
    refusal.says(&["192.0.2.1", "does not have that address", "--listen"]);
}

#[test]
fn an_address_that_no_client_reaches_is_named_with_the_clients() {
    let refusal = refused(&serve(&Place::new(), &["--clients=10.0.0.0/8"]));
    assert_eq!(refusal.code, 2);
    refusal.says(&["listen = 127.0.0.1:0", "clients = 10.0.0.0/8", "0.0.0.0"]);
}

#[test]
fn more_memory_than_the_machine_has_is_refused_with_both_figures() {
    let refusal = refused(&serve(&Place::new(), &["--memory-limit=64TiB"]));
    assert_eq!(refusal.code, 2);
    refusal.says(&["memory_limit = 64TiB", "of memory that", "lower it"]);
}

#[test]
fn a_size_without_a_unit_is_refused_with_those_that_may_be_meant() {
    let refusal = refused(&serve(&Place::new(), &["--memory-limit=4"]));
    assert_eq!(refusal.code, 2);
    refusal.says(&["memory_limit = `4`", "did you mean 4MiB or 4GiB?", "4B"]);
    let quota = run(&["quota", "set", "/home", "--bytes", "12"]);
    assert_eq!(quota.status.code(), Some(2));
    assert!(quota.stderr.contains("12MiB or 12GiB"), "{}", quota.stderr);
}

#[test]
fn a_port_in_use_is_named() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refusal = refused(&serve(&place, &[&format!("--listen={address}")]));
    assert_eq!(refusal.code, 1);
    refusal.says(&[&address, "in use", "listen"]);
    drop(taken);
    place.serve().stop_cleanly();
}

#[test]
fn asking_a_gateway_that_does_not_run_says_how_to_start_it() {
    let data_dir = format!("--data-dir={}", Place::new().data_dir().display());
    for command in [&["status", "--json"][..], &["flush"]] {
        let arguments: Vec<_> = command.iter().copied().chain([&*data_dir]).collect();
        let refusal = refused(&arguments);
        assert_eq!(refusal.code, 1);
        refusal.says(&["no gateway runs with data_dir", "forebay serve"]);
    }
}

/// CRC-32 as in zlib, bit by bit: the test shares no code with the program.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

#[test]
fn the_checksum_of_these_tests_is_the_usual_one() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}
