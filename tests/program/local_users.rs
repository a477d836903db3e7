//! Other users of the machine get no access, with any umask and any permissions of existing files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::nfs::Stable;
use crate::support::{Gateway, Place, Running, refused, run};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Everything below a folder, and itself.
fn all(path: &Path, found: &mut Vec<PathBuf>) {
    found.push(path.to_owned());
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            all(&entry.unwrap().path(), found);
        }
    }
}

#[track_caller]
fn assert_closed(path: &Path) {
    let mut found = Vec::new();
    all(path, &mut found);
    for path in found {
        let mode = fs::symlink_metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:04o}", path.display());
    }
}

#[test]
fn nothing_that_a_gateway_makes_is_for_others_whatever_the_umask() {
    let place = Place::new();
    let flags = place.flags("data");
    let gateway = Gateway::start_with_umask_0(&flags);
    let mut client = gateway.client();
    client.put("payroll", b"SALARY OF ANN");
    gateway.flush();
    let root = client.mount();
    let file = client.create(&root, b"more");
    client
        .write(&file, 0, &[7; 5000], Stable::FileSync)
        .unwrap();
    assert_closed(&place.data_dir());
    assert_closed(&place.bucket());
    gateway.stop_cleanly();
    assert_closed(&place.data_dir());
    assert_closed(&place.bucket());
}

#[test]
fn what_was_too_open_before_is_closed_at_the_start_and_said() {
    let place = Place::new();
    for folder in [place.data_dir(), place.bucket()] {
        fs::create_dir(&folder).unwrap();
        set_mode(&folder, 0o777);
    }
    let gateway = place.serve();
    gateway.client().put("payroll", b"SALARY OF ANN");
    let said = gateway.messages();
    assert_eq!(
        said.matches("other users of this machine could read")
            .count(),
        2,
        "{said}"
    );
    gateway.stop_cleanly();
    // As an earlier version would have left it, under an open umask.
    let mut found = Vec::new();
    all(&place.data_dir(), &mut found);
    all(&place.bucket(), &mut found);
    for path in found {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    let gateway = place.serve();
    assert_closed(&place.data_dir());
    assert_closed(&place.bucket());
    gateway.stop_cleanly();
    // Objects of a bucket that other users could not reach are closed as well, in the background.
    let mut found = Vec::new();
    all(&place.bucket(), &mut found);
    for path in found.iter().filter(|path| path.is_file()) {
        set_mode(path, 0o644);
    }
    let gateway = place.serve();
    gateway.says("removed permissions of other users");
    assert_closed(&place.bucket());
    gateway.stop_cleanly();
}

#[test]
fn a_folder_with_things_of_others_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    fs::create_dir(place.data_dir()).unwrap();
    fs::write(place.data_dir().join("hosts"), "127.0.0.1").unwrap();
    set_mode(&place.data_dir(), 0o755);
    let mut arguments = ["serve", "--create"].map(str::to_owned).to_vec();
    arguments.extend(place.flags("data"));
    let refusal = refused(&arguments);
    assert_eq!(refusal.code, 1);
    refusal.says(&["data_dir", "(hosts)", "chmod 700"]);
    assert_eq!(
        fs::metadata(place.data_dir()).unwrap().mode() & 0o777,
        0o755
    );
    assert!(!place.bucket().exists(), "something was made all the same");
}

#[test]
#[ignore = "needs root, to give folders to another user"]
fn as_root_what_belongs_to_another_user_is_refused() {
    let place = Place::new();
    place.serve().stop_cleanly();
    for path in [
        place.data_dir(),
        place.data_dir().join("log"),
        place.bucket(),
    ] {
        chown(&path, Some(65534), None).unwrap();
        let mut arguments = vec!["serve".to_owned()];
        arguments.extend(place.flags("data"));
        let refusal = refused(&arguments);
        assert_eq!(refusal.code, 1);
        refusal.says(&["belongs to user 65534", "chown -R 0"]);
        chown(&path, Some(0), None).unwrap();
    }
    place.serve().stop_cleanly();
}

#[test]
fn nobody_looks_into_the_process_and_no_core_is_written() {
    let place = Place::new();
    // Files that belong to root in any case would show nothing.
    let is_root = rustix::process::geteuid().is_root();
    let uid = if is_root {
        65534
    } else {
        rustix::process::geteuid().as_raw()
    };
    let program = place.path("forebay");
    fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).unwrap();
    set_mode(&program, 0o755);
    set_mode(place.as_ref(), 0o755);
    fs::create_dir(place.data_dir()).unwrap();
    if is_root {
        chown(place.data_dir(), Some(uid), Some(uid)).unwrap();
    }
    let mut command = Command::new(program);
    command
        .arg("serve")
        .arg(format!("--data-dir={}", place.data_dir().display()))
        .arg("--listen=127.0.0.1:0")
        .env_clear()
        .env("AWS_SECRET_ACCESS_KEY", "a secret")
        .current_dir("/")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if is_root {
        command.uid(uid).gid(uid);
    }
    let mut child = Running(command.spawn().unwrap());
    // The program prints its first line when it serves.
    let mut first = [0];
    let stdout = child.0.stdout.as_mut().unwrap();
    std::io::Read::read_exact(stdout, &mut first).unwrap();
    let process = PathBuf::from(format!("/proc/{}", child.0.id()));
    for file in ["environ", "mem", "maps"] {
        let owner = fs::metadata(process.join(file)).unwrap().uid();
        assert_eq!(owner, 0, "{file} can be opened by user {owner}");
    }
    let limits = fs::read_to_string(process.join("limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let fields: Vec<_> = core.unwrap().split_whitespace().collect();
    assert_eq!(fields[4..6], ["0", "0"], "{limits}");
}

#[test]
fn other_commands_leave_nothing_for_others_either() {
    let place = Place::new();
    let mut arguments = vec!["format".to_owned()];
    arguments.extend(place.flags("data"));
    let made = run(&arguments);
    assert!(made.status.success(), "{}", made.stderr);
    assert_closed(&place.bucket());
}
