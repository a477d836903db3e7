//! Checks whether a configuration fits the machine: its memory, and the disk of `data_dir`; whether any client can
//! reach the gateway; and whether the machine's clock can be right.
//!
//! A value that cannot work is refused, unless it is a default; one that may become too small causes a warning, with
//! both figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use forebay_fs::FsConfig;

use crate::config::{Config, ConfigError, ConfigErrors, LogMode, Source, Value};

/// Memory of the program beside `memory_limit`, `metadata_cache`, and names and attributes.
const BESIDE: u64 = 128 << 20;

/// The same including names and attributes, whose limit depends on `memory_limit`.
fn beside(memory_limit: u64) -> u64 {
    let config = FsConfig::new(PathBuf::new()).with_memory(memory_limit);
    BESIDE + config.names_memory()
}

/// Checks memory and disk of this machine. `data_dir` exists.
///
/// # Errors
/// Settings that do not fit this machine.
pub fn check(config: &Config) -> Result<(), ConfigErrors> {
    check_listen(config).map_err(|error| ConfigErrors(vec![error]))?;
    let memory = memory_verdict(config, Memory::of(Path::new("/")));
    let disk = Disk::of(&config.data_dir).and_then(|disk| disk_warning(config, disk));
    let warnings = match memory {
        Verdict::Refused(error) => return Err(ConfigErrors(vec![*error])),
        Verdict::Warned(warning) => [Some(warning), disk],
        Verdict::Fits => [None, disk],
    };
    for warning in warnings.into_iter().flatten() {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// Refuses an address to listen on that no client of the exports can reach: the clients would seem to be broken.
fn check_listen(config: &Config) -> Result<(), ConfigError> {
    let listen = config.listen.ip();
    let mut clients = (config.exports.iter()).flat_map(|export| export.clients.ranges());
    if clients.any(|range| range.reaches(listen)) {
        return Ok(());
    }
    let way_out = match listen.is_loopback() {
        true => {
            "only this machine reaches that address: listen on an address that the clients reach (0.0.0.0 means all of this machine's), or add 127.0.0.0/8 or ::1 to clients"
        }
        false => "add the clients' networks to clients, or listen on an address that these reach",
    };
    let clients = match &config.exports[..] {
        [one] if one.clients == config.clients => config.described("clients"),
        exports => {
            let each = exports.iter();
            let each = each
                .map(|export| format!("clients = {} of {}", export.clients.write(), export.path));
            each.collect::<Vec<_>>().join(" and ")
        }
    };
    Err(ConfigError::Conflict {
        key: "listen",
        value: config.listen.to_string(),
        place: config.source("listen"),
        problem: format!("cannot be reached by any client that may mount ({clients}): {way_out}"),
    })
}

/// Refuses a time of day that cannot be right. Libraries end the program before 1970, S3 refuses requests that are
/// signed before that, and NFS has no numbers for times after 2106; a volume remembers the latest time that it has
/// seen, so one start with such a clock would have permanent effects.
///
/// # Errors
/// The time of the clock, and the remedy, as a message to the user.
pub fn check_clock(now: SystemTime) -> Result<(), String> {
    const LAST: Duration = Duration::from_secs(u32::MAX as u64);
    let wrong = match now.duration_since(UNIX_EPOCH) {
        Err(_) => "is before 1970",
        Ok(since) if since > LAST => "is after February 2106, where the times of NFSv3 end",
        Ok(_) => return Ok(()),
    };
    Err(format!(
        "the clock of this machine {wrong}: set it right, and start again"
    ))
}

/// The result of a check.
#[derive(Debug)]
enum Verdict {
    Fits,
    Warned(String),
    Refused(Box<ConfigError>),
}

/// Bytes of memory that this process can have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    bytes: u64,
    /// Whether the number is the limit of its cgroup, as in a container, and not the machine's.
    of_cgroup: bool,
}

impl Memory {
    /// From the files below `root`; `None` where they have no such number.
    fn of(root: &Path) -> Option<Memory> {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let of_machine = read("proc/meminfo").and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("MemTotal:"))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kib.checked_mul(1024)
        });
        let groups = read("proc/self/cgroup").unwrap_or_default();
        let of_cgroup = groups.lines().filter_map(|line| {
            // Number, controllers, path; version 2 has no controllers.
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let (top, file) = match controllers {
                "" => ("sys/fs/cgroup", "memory.max"),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
                }
                _ => return None,
            };
            // The limit of every group above counts as well. In a container the path may be that of the machine,
            // which is not there: then the topmost is the container's.
            let group = Path::new(path.trim_start_matches('/'));
            let limits = group.ancestors().filter_map(|group| {
                let limit = fs::read_to_string(root.join(top).join(group).join(file)).ok()?;
                limit.trim().parse::<u64>().ok()
            });
            limits.min()
        });
        let of_cgroup = of_cgroup.min();
        match (of_machine, of_cgroup) {
            (machine, Some(bytes)) if machine.is_none_or(|machine| bytes < machine) => {
                Some(Memory {
                    bytes,
                    of_cgroup: true,
                })
            }
            (Some(bytes), _) => Some(Memory {
                bytes,
                of_cgroup: false,
            }),
            (None, _) => None,
        }
    }

    fn described(self) -> String {
        let bytes = iec(self.bytes);
        match self.of_cgroup {
            true => format!("the {bytes} of memory that its cgroup allows it"),
            false => format!("the {bytes} of memory that this machine has"),
        }
    }
}

fn memory_verdict(config: &Config, memory: Option<Memory>) -> Verdict {
    let Some(memory) = memory else {
        return Verdict::Fits;
    };
    let limit = config.memory_limit;
    let source = config.source("memory_limit");
    if limit.bytes() > memory.bytes && source != Source::Default {
        return Verdict::Refused(Box::new(ConfigError::Conflict {
            key: "memory_limit",
            value: limit.to_string(),
            place: source,
            problem: format!(
                "is more than {}: lower it, and leave room for {} beside it",
                memory.described(),
                iec(beside(limit.bytes()) + config.metadata_cache.bytes())
            ),
        }));
    }
    let needed = limit
        .bytes()
        .saturating_add(config.metadata_cache.bytes() + beside(limit.bytes()));
    if needed > memory.bytes {
        return Verdict::Warned(format!(
            "the gateway may need {} of memory (memory_limit = {limit}, metadata_cache = {}, and {}), which is more than {}: lower memory_limit, or the system may kill it",
            iec(needed),
            config.metadata_cache,
            iec(beside(limit.bytes())),
            memory.described()
        ));
    }
    Verdict::Fits
}

/// The disk of `data_dir`, in bytes.
#[derive(Clone, Copy, Debug)]
struct Disk {
    total: u64,
    /// Bytes that this user may still write there, plus those of log and disk cache.
    available: u64,
}

impl Disk {
    fn of(data_dir: &Path) -> Option<Disk> {
        let disk = rustix::fs::statvfs(data_dir).ok()?;
        let own = ["log", "cache"].map(|name| allocated(&data_dir.join(name)));
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Some(Disk {
            total: disk.f_blocks.saturating_mul(disk.f_frsize),
            available: free.saturating_add(own.iter().sum()),
        })
    }
}

/// Bytes of disk that the files in a folder and its subfolders occupy.
fn allocated(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => allocated(&entry.path()),
        Ok(found) => found.blocks().saturating_mul(512),
        Err(_) => 0,
    });
    sizes.sum()
}

fn disk_warning(config: &Config, disk: Disk) -> Option<String> {
    let log = match config.log {
        LogMode::Disk => config.log_limit.bytes(),
        LogMode::None => 0,
    };
    let needed = log.saturating_add(config.disk_cache_limit.bytes());
    if needed <= disk.available {
        return None;
    }
    let has = match needed > disk.total {
        true => format!("has {} in all", iec(disk.total)),
        false => format!("has room for {}", iec(disk.available)),
    };
    let cache = match config.disk_cache_limit.bytes() {
        0 => String::new(),
        _ => format!(" and disk_cache_limit = {}", config.disk_cache_limit),
    };
    Some(format!(
        "log_limit = {}{cache} may take {} of the disk of {}, which {has}: writers wait for the bucket when the disk is full; make room, or lower the limit",
        config.log_limit,
        iec(needed),
        config.data_dir.display()
    ))
}

/// The warning where the volume has more bytes than `volume_limit`.
pub fn volume_warning(used: u64, config: &Config) -> Option<String> {
    let limit = config.volume_limit;
    (used > limit.bytes()).then(|| {
        format!(
            "the volume holds {}, which is more than volume_limit = {limit}: every write that needs space fails with ENOSPC until something is removed or the limit is raised",
            iec(used)
        )
    })
}

fn iec(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::config::Inputs;

    fn config(flags: &[(&'static str, &str)]) -> Config {
        config_with(flags, None)
    }

    fn config_with(flags: &[(&'static str, &str)], file: Option<PathBuf>) -> Config {
        let inputs = Inputs {
            flags: flags
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned()))
                .collect(),
            file,
            variables: Vec::new(),
            system_file: "/nonexistent".into(),
            is_root: true,
        };
        Config::load(&inputs).unwrap()
    }

    fn machine(files: &[(&str, &str)]) -> Option<Memory> {
        let root = TempDir::new().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Memory::of(root.path())
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       2097152 kB\nMemFree: 1 kB\n",
    );

    #[test]
    fn memory_is_what_the_machine_has_or_less_if_a_cgroup_says_so() {
        let of = |bytes, of_cgroup| Some(Memory { bytes, of_cgroup });
        assert_eq!(machine(&[MEMINFO]), of(2 << 30, false));
        let group = ("proc/self/cgroup", "0::/system.slice/forebay.service\n");
        let unlimited = (
            "sys/fs/cgroup/system.slice/forebay.service/memory.max",
            "max\n",
        );
        let above = ("sys/fs/cgroup/system.slice/memory.max", "536870912\n");
        assert_eq!(machine(&[MEMINFO, group, unlimited]), of(2 << 30, false));
        assert_eq!(
            machine(&[MEMINFO, group, unlimited, above]),
            of(512 << 20, true)
        );
        // A container that sees only its own groups, and one of version 1.
        let own = ("sys/fs/cgroup/memory.max", "1073741824");
        assert_eq!(machine(&[MEMINFO, group, own]), of(1 << 30, true));
        let first = ("proc/self/cgroup", "7:cpu:/x\n5:memory:/docker/1\n");
        let limit = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
        assert_eq!(machine(&[MEMINFO, first, limit]), of(256 << 20, true));
        // Version 1 writes "no limit" in this way.
        let none = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(machine(&[MEMINFO, first, none]), of(2 << 30, false));
        assert_eq!(machine(&[]), None);
        assert_eq!(machine(&[("proc/meminfo", "MemTotal: many kB")]), None);
    }

    #[test]
    fn an_address_that_no_client_reaches_is_refused() {
        let check = |listen: &str, clients: &str| {
            check_listen(&config(&[("listen", listen), ("clients", clients)]))
        };
        for (listen, clients) in [
            ("127.0.0.1:2049", "10.0.0.0/8"),
            ("[::1]:2049", "127.0.0.0/8,10.0.0.0/8"),
            ("10.0.0.1:2049", "127.0.0.0/8,::1"),
            ("10.0.0.1:2049", "fd00::/8"),
            ("0.0.0.0:2049", "fd00::/8"),
        ] {
            let said = check(listen, clients).unwrap_err().to_string();
            for part in [
                &format!("listen = {listen} (--listen)"),
                "clients = ",
                "--clients",
            ] {
                assert!(said.contains(part), "{said}");
            }
        }
        for (listen, clients) in [
            ("127.0.0.1:2049", "127.0.0.9"),
            ("127.0.0.1:2049", "10.0.0.0/8,127.0.0.0/8"),
            ("127.0.0.1:2049", "*"),
            ("[::1]:2049", "::1"),
            ("0.0.0.0:2049", "127.0.0.0/8"),
            ("[::]:2049", "10.0.0.0/8"),
            ("[fd00::1]:2049", "fd00::/8"),
            ("10.0.0.1:2049", "10.0.0.0/24"),
        ] {
            check(listen, clients).unwrap();
        }
    }

    #[test]
    fn an_address_that_no_client_reaches_is_refused_with_the_clients_of_each_export() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("forebay.toml");
        let text = "[[export]]\npath = \"/\"\nclients = [\"10.0.0.0/8\"]\n\n[[export]]\npath = \"/more\"\nclients = [\"fd00::/8\"]\n";
        fs::write(&file, text).unwrap();
        let config = config_with(&[("listen", "127.0.0.1:2049")], Some(file));
        let said = check_listen(&config).unwrap_err().to_string();
        let clients = "(clients = 10.0.0.0/8 of / and clients = fd00::/8 of /more): ";
        assert!(said.contains(clients), "{said}");
    }

    #[test]
    fn a_clock_that_cannot_be_right_is_refused() {
        let seconds = Duration::from_secs;
        for (now, says) in [
            (UNIX_EPOCH - seconds(1), Some("before 1970")),
            (UNIX_EPOCH - seconds(1 << 40), Some("before 1970")),
            (UNIX_EPOCH, None),
            (UNIX_EPOCH + seconds(1_800_000_000), None),
            (UNIX_EPOCH + seconds(u64::from(u32::MAX)), None),
            (
                UNIX_EPOCH + seconds(1 + u64::from(u32::MAX)),
                Some("after February 2106"),
            ),
            (UNIX_EPOCH + seconds(1 << 55), Some("after February 2106")),
        ] {
            let checked = check_clock(now);
            match says {
                None => assert_eq!(checked, Ok(())),
                Some(says) => assert!(checked.clone().unwrap_err().contains(says), "{checked:?}"),
            }
        }
    }

    #[test]
    fn a_memory_limit_beyond_the_machine_is_refused_with_both_figures() {
        let memory = Some(Memory {
            bytes: 2 << 30,
            of_cgroup: true,
        });
        let Verdict::Refused(error) = memory_verdict(&config(&[("memory_limit", "4GiB")]), memory)
        else {
            panic!("not refused");
        };
        let said = error.to_string();
        for part in [
            "memory_limit = 4GiB (--memory-limit)",
            "2.0 GiB",
            "cgroup",
            "lower it",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn memory_that_may_be_too_little_is_a_warning_and_so_is_a_default() {
        let memory = |bytes| {
            Some(Memory {
                bytes,
                of_cgroup: false,
            })
        };
        let tight = memory_verdict(&config(&[("memory_limit", "2GiB")]), memory(2 << 30));
        let Verdict::Warned(said) = tight else {
            panic!("{tight:?}");
        };
        assert!(
            said.contains("2.3 GiB") && said.contains("2.0 GiB"),
            "{said}"
        );
        let default = memory_verdict(&config(&[]), memory(512 << 20));
        assert!(matches!(default, Verdict::Warned(_)), "{default:?}");
        let fits = memory_verdict(&config(&[]), memory(2 << 30));
        assert!(matches!(fits, Verdict::Fits), "{fits:?}");
        let unknown = memory_verdict(&config(&[("memory_limit", "64TiB")]), None);
        assert!(matches!(unknown, Verdict::Fits), "{unknown:?}");
    }

    #[test]
    fn a_log_that_the_disk_has_no_room_for_is_a_warning_with_both_figures() {
        let disk = Disk {
            total: 10 << 30,
            available: 3 << 30,
        };
        assert_eq!(disk_warning(&config(&[("log_limit", "3GiB")]), disk), None);
        assert_eq!(disk_warning(&config(&[("log", "none")]), disk), None);
        let said = disk_warning(&config(&[("log_limit", "4GiB")]), disk).unwrap();
        assert!(
            said.contains("4.0 GiB") && said.contains("room for 3.0 GiB"),
            "{said}"
        );
        let said = disk_warning(&config(&[("log_limit", "16GiB")]), disk).unwrap();
        assert!(said.contains("has 10.0 GiB in all"), "{said}");
        let both = config(&[("log_limit", "2GiB"), ("disk_cache_limit", "2GiB")]);
        let said = disk_warning(&both, disk).unwrap();
        assert!(
            said.contains("disk_cache_limit = 2GiB") && said.contains("4.0 GiB"),
            "{said}"
        );
    }

    #[test]
    fn what_log_and_cache_have_already_is_room_for_them() {
        let dir = TempDir::new().unwrap();
        let before = Disk::of(dir.path()).unwrap();
        assert!(before.available <= before.total);
        fs::create_dir(dir.path().join("log")).unwrap();
        fs::write(dir.path().join("log/a"), vec![1; 1 << 20]).unwrap();
        fs::create_dir(dir.path().join("cache")).unwrap();
        fs::write(dir.path().join("cache/b"), vec![1; 1 << 20]).unwrap();
        let own = allocated(&dir.path().join("log")) + allocated(&dir.path().join("cache"));
        assert!(own >= 2 << 20, "{own}");
    }

    #[test]
    fn a_volume_that_is_over_its_limit_is_named_with_both_figures() {
        let config = config(&[("volume_limit", "1GiB")]);
        assert_eq!(volume_warning(1 << 30, &config), None);
        let said = volume_warning(3 << 30, &config).unwrap();
        assert!(
            said.contains("3.0 GiB") && said.contains("volume_limit = 1GiB"),
            "{said}"
        );
    }
}
