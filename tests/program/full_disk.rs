//! The disk of the log is full: at the start an error, later a wait.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Place, refused};

/// A small file system in memory, mounted at a folder until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf, mib: u32) -> SmallDisk {
        std::fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
            .arg(&folder)
            .status();
        assert!(mounted.unwrap().success(), "mount of a tmpfs");
        SmallDisk(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs root, to mount a small disk"]
fn as_root_a_log_disk_without_room_for_a_segment_is_refused() {
    let place = Place::new();
    let _disk = SmallDisk::mount(place.data_dir(), 2);
    let mut arguments = ["serve", "--create"].map(str::to_owned).to_vec();
    arguments.extend(place.flags("data"));
    let refusal = refused(&arguments);
    assert_eq!(refusal.code, 1);
    refusal.says(&["log", "No space left on device"]);
}

#[test]
#[ignore = "needs root, to mount a small disk"]
fn as_root_a_log_disk_that_fills_up_slows_writers_and_fails_none() {
    let place = Place::new();
    let _disk = SmallDisk::mount(place.data_dir(), 24);
    // The limit is larger than the disk.
    let flags = [
        "--log-limit=256MiB",
        "--log-segment=4MiB",
        "--checkpoint-bytes=8MiB",
    ];
    let gateway = place.serve_with("data", &flags);
    let data = vec![9; 96 << 20];
    gateway.client().put("file", &data);
    assert!(gateway.client().get("file").unwrap() == data[..1 << 20]);
    gateway.stop_cleanly();
}
