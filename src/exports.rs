//! Translates the exports of the configuration to those of the server, and describes them for people.
//!
//! Tables of the configuration with the same path are one export with several rules. Its number in file handles
//! depends only on the path, so that neither the order of the tables nor a change of rules forces clients to mount
//! again.

use forebay_fs::{CommitMode, Compression};
use forebay_nfs::{
    Anonymous, Export, ExportAccess, Flavors, Rule, SourcePort, Squash, Transports, View,
    VirtualDirectory,
};

use crate::admin::ExportStatus;
use crate::config::{self, Config, Value as _};

/// The exports of the server: directories, clients, and identities.
pub fn served(config: &Config) -> Vec<Export> {
    let mut served: Vec<Export> = Vec::new();
    for entry in &config.exports {
        let path = entry.path.as_bytes();
        match served.iter_mut().find(|export| export.path == path) {
            Some(export) => export.rules.extend(rules(entry)),
            None => served.push(Export {
                id: id(&entry.path),
                path: path.to_vec(),
                rules: rules(entry),
            }),
        }
    }
    served
}

/// The number of an export in file handles. It must never change, or clients would have to mount again.
fn id(path: &str) -> u32 {
    if path == "/" {
        return 1;
    }
    let hash = blake3::hash(path.as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    // Far from the number of the root.
    u32::from_be_bytes([a, b, c, d]) | 1 << 31
}

/// The rules of a table: one, or two if loopback clients are trusted more.
fn rules(entry: &config::Export) -> Vec<Rule> {
    let rule = |clients, squash| Rule {
        clients,
        access: match entry.access {
            config::Access::ReadWrite => ExportAccess::ReadWrite,
            config::Access::ReadOnly => ExportAccess::ReadOnly,
        },
        squash,
        anonymous: Anonymous {
            uid: entry.anonuid,
            gid: entry.anongid,
        },
        flavors: Flavors {
            sys: entry.sec.sys,
            none: entry.sec.none,
        },
        source_port: match entry.source_port {
            config::SourcePort::Secure => SourcePort::Privileged,
            config::SourcePort::Insecure => SourcePort::Any,
        },
        transports: Transports {
            none: entry.xprtsec.none,
            tls: entry.xprtsec.tls,
            mtls: entry.xprtsec.mtls,
        },
        view: view(entry),
        snapshots: shown(entry.snapshot_directory),
        trash: entry.trash.0.unwrap_or_default(),
        trash_directory: shown(entry.trash_directory),
    };
    let all = entry.clients.ranges().to_vec();
    match entry.squash {
        config::Squash::None => vec![rule(all, Squash::None)],
        config::Squash::Root => vec![rule(all, Squash::Root)],
        config::Squash::All => vec![rule(all, Squash::All)],
        config::Squash::Auto => {
            let (own, others) = all.into_iter().partition(|range| range.is_loopback());
            vec![rule(own, Squash::None), rule(others, Squash::Root)]
        }
    }
}

fn shown(directory: config::VirtualDirectory) -> VirtualDirectory {
    match directory {
        config::VirtualDirectory::Hidden => VirtualDirectory::Hidden,
        config::VirtualDirectory::Visible => VirtualDirectory::Visible,
        config::VirtualDirectory::Off => VirtualDirectory::Off,
    }
}

fn described_directory(directory: VirtualDirectory) -> &'static str {
    match directory {
        VirtualDirectory::Hidden => "hidden",
        VirtualDirectory::Visible => "visible",
        VirtualDirectory::Off => "off",
    }
}

/// Number of bits of a view for the commit mode, below the code of its compression.
const MODE_BITS: u32 = 2;

/// The view of the volume with this commit mode and compression.
fn view(entry: &config::Export) -> View {
    let mode = match entry.commit {
        config::CommitMode::Disk => 0,
        config::CommitMode::Bucket => 1,
        config::CommitMode::Async => 2,
    };
    let compression = compressed(entry.compression, entry.compression_level);
    View(mode | compression.code() << MODE_BITS)
}

/// The compression that two settings describe.
pub fn compressed(compression: config::Compression, levels: forebay_fs::Levels) -> Compression {
    match compression {
        config::Compression::Auto => Compression::Auto(levels),
        config::Compression::Off => Compression::Off,
    }
}

/// The compression of a view from [`served`]; `None` for any other view.
pub fn compression(view: View) -> Option<Compression> {
    Compression::from_code(view.0 >> MODE_BITS)
}

/// The commit mode of a view from [`served`].
pub fn commit_mode(view: View) -> CommitMode {
    match view.0 & ((1 << MODE_BITS) - 1) {
        1 => CommitMode::Bucket,
        2 => CommitMode::Async,
        _ => CommitMode::Disk,
    }
}

/// The exports for people: one line for each client or network.
pub fn described(exports: &[Export]) -> Vec<ExportStatus> {
    let mut lines = Vec::new();
    for export in exports {
        for rule in &export.rules {
            let line = |range: &forebay_nfs::AddressRange| ExportStatus {
                path: String::from_utf8_lossy(&export.path).into_owned(),
                client: range.to_string(),
                access: match rule.access {
                    ExportAccess::ReadWrite => "rw",
                    ExportAccess::ReadOnly => "ro",
                }
                .to_owned(),
                squash: match rule.squash {
                    Squash::None => "no_root_squash",
                    Squash::Root => "root_squash",
                    Squash::All => "all_squash",
                }
                .to_owned(),
                anonuid: rule.anonymous.uid,
                anongid: rule.anonymous.gid,
                sec: match rule.flavors {
                    Flavors { sys: true, none } if none => "sys:none",
                    Flavors { sys: true, .. } => "sys",
                    Flavors { .. } => "none",
                }
                .to_owned(),
                source_port: match rule.source_port {
                    SourcePort::Privileged => "secure",
                    SourcePort::Any => "insecure",
                }
                .to_owned(),
                xprtsec: xprtsec(rule.transports),
                commit: match commit_mode(rule.view) {
                    CommitMode::Disk => "disk",
                    CommitMode::Bucket => "bucket",
                    CommitMode::Async => "async",
                }
                .to_owned(),
                compression: match compression(rule.view) {
                    Some(Compression::Auto(levels)) => levels.to_string(),
                    Some(Compression::Off) | None => "off".to_owned(),
                },
                snapshot_directory: described_directory(rule.snapshots).to_owned(),
                trash_directory: described_directory(rule.trash_directory).to_owned(),
                trash: config::MaybeDuration(Some(rule.trash).filter(|time| !time.is_zero()))
                    .write()
                    .to_string(),
            };
            lines.extend(rule.clients.iter().map(line));
        }
    }
    lines
}

/// In the form of exports(5).
fn xprtsec(transports: Transports) -> String {
    let Transports { none, tls, mtls } = transports;
    let ways = [(none, "none"), (tls, "tls"), (mtls, "mtls")];
    let listed = ways.into_iter().filter(|(listed, _)| *listed);
    let words: Vec<_> = listed.map(|(_, word)| word).collect();
    words.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Inputs;

    fn load(text: &str) -> Config {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("forebay.toml");
        std::fs::write(&file, text).unwrap();
        let inputs = Inputs {
            flags: vec![("data_dir", "/srv/forebay".to_owned())],
            file: Some(file),
            variables: Vec::new(),
            system_file: "/nonexistent".into(),
            is_root: false,
        };
        Config::load(&inputs).unwrap()
    }

    fn lines(text: &str) -> Vec<String> {
        let lines = described(&served(&load(text)));
        lines.iter().map(ExportStatus::to_string).collect()
    }

    #[test]
    fn tables_of_one_path_are_one_export_with_several_rules() {
        let text = r#"
            [[export]]
            path = "/home"
            clients = ["10.0.0.0/8"]
            squash = "root_squash"
            [[export]]
            path = "/scratch"
            clients = ["*"]
            squash = "all_squash"
            anonuid = 150
            anongid = 100
            commit = "async"
            [[export]]
            path = "/home"
            clients = ["192.168.1.5"]
            access = "ro"
            squash = "no_root_squash"
            sec = ["sys", "none"]
            source_port = "insecure"
            commit = "bucket"
        "#;
        let served = served(&load(text));
        let paths: Vec<_> = served.iter().map(|export| &export.path[..]).collect();
        assert_eq!(paths, [&b"/home"[..], b"/scratch"]);
        let rest = "anonuid=65534,anongid=65534";
        assert_eq!(
            lines(text),
            [
                format!("/home 10.0.0.0/8(rw,root_squash,{rest},sec=sys,secure,commit=disk)"),
                format!(
                    "/home 192.168.1.5(ro,no_root_squash,{rest},sec=sys:none,insecure,commit=bucket)"
                ),
                "/scratch 0.0.0.0/0(rw,all_squash,anonuid=150,anongid=100,sec=sys,secure,commit=async)"
                    .to_owned(),
                "/scratch ::/0(rw,all_squash,anonuid=150,anongid=100,sec=sys,secure,commit=async)"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn what_an_export_asks_of_connections_is_shown_unless_it_is_nothing() {
        let files = "tls_certificate = \"/c\"\ntls_key = \"/k\"\ntls_client_ca = \"/a\"\n";
        let shown = |text: &str| lines(&format!("{files}{text}")).remove(0);
        assert!(!shown("").contains("xprtsec"));
        assert!(shown("xprtsec = [\"mtls\", \"tls\"]").contains("secure,xprtsec=tls:mtls,commit"));
        assert!(shown("xprtsec = \"mtls\"").contains(",xprtsec=mtls,"));
        assert!(shown("xprtsec = \"none\"").contains(",xprtsec=none,"));
    }

    #[test]
    fn auto_trusts_root_of_the_loopback_networks_that_are_named() {
        let squashed = |clients: &str| {
            let lines = lines(&format!("clients = {clients}"));
            let squash = |line: &String| line.contains("(rw,root_squash,");
            lines.iter().map(squash).collect::<Vec<_>>()
        };
        assert_eq!(squashed(r#"["127.0.0.0/8", "::1"]"#), [false, false]);
        // Loopback first: the order within an export does not matter.
        assert_eq!(squashed(r#"["10.0.0.0/8", "127.0.0.1"]"#), [false, true]);
        assert_eq!(squashed(r#"["*"]"#), [true, true]);
    }

    #[test]
    fn numbers_in_handles_follow_from_the_path_alone() {
        let ids = |text: &str| {
            let served = served(&load(text));
            let id = |export: &Export| {
                (
                    String::from_utf8_lossy(&export.path).into_owned(),
                    export.id,
                )
            };
            let mut ids: Vec<_> = served.iter().map(id).collect();
            ids.sort();
            ids
        };
        let one = "[[export]]\npath = \"/\"\n[[export]]\npath = \"/a\"\n";
        let other = "squash = \"all\"\n[[export]]\npath = \"/a/\"\ncommit = \"async\"\n[[export]]\npath = \"/\"\n";
        assert_eq!(ids(one), ids(other));
        // As in the first release.
        assert_eq!(ids(one)[0], ("/".to_owned(), 1));
        assert_eq!(ids(one)[1].1, id("/a"));
        assert_ne!(id("/a"), id("/b"));
    }
}
