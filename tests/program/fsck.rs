//! `forebay fsck`: clean beside a gateway and after it, names what is damaged, and says so by its exit code.

use serde_json::Value;

use crate::support::{Place, run};

#[test]
fn a_volume_is_checked_beside_its_gateway_and_damage_is_named() {
    let place = Place::new();
    let mut command = vec!["fsck".to_owned()];
    command.extend(place.flags("data"));
    let with = |more: &[&str]| {
        let mut all = command.clone();
        all.extend(more.iter().map(|&flag| flag.to_owned()));
        run(&all)
    };
    let unchecked = with(&[]);
    assert_eq!(unchecked.status.code(), Some(2), "{}", unchecked.stderr);

    let gateway = place.serve();
    gateway.client().put("file", b"these bytes will be damaged");
    gateway.flush();
    let clean = with(&["--read-data"]);
    assert_eq!(
        clean.status.code(),
        Some(0),
        "{}{}",
        clean.stdout,
        clean.stderr
    );
    assert!(
        clean.stdout.contains("everything fits together"),
        "{}",
        clean.stdout
    );
    let quiet = with(&["--quiet"]);
    assert_eq!((quiet.status.code(), quiet.stdout.as_str()), (Some(0), ""));
    // The gateway was not fenced.
    gateway.client().put("more", b"and these will not");
    gateway.stop_cleanly();

    let packs = place.bucket().join("packs");
    let folders = std::fs::read_dir(packs).unwrap();
    let packs = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    let mut damaged = 0;
    for pack in packs {
        let pack = pack.unwrap().path();
        let mut bytes = std::fs::read(&pack).unwrap();
        let text = b"these bytes will be damaged";
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
            bytes[at] ^= 1;
            std::fs::write(&pack, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    assert_eq!(with(&[]).status.code(), Some(0), "data are not read");
    let found = with(&["--read-data", "--quiet"]);
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    assert!(
        found.stdout.contains("damaged-frame: 1"),
        "{}",
        found.stdout
    );
    assert!(found.stdout.contains("/file"), "{}", found.stdout);

    let found = with(&["--read-data", "--json"]);
    assert_eq!(found.status.code(), Some(1));
    let report: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(report["clean"], false, "{report}");
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["finding"], &finding["count"]),
        (&"damaged-frame".into(), &1.into())
    );
    let example = &finding["examples"][0];
    assert_eq!(example["path"], "/file", "{report}");
    assert_eq!((&example["from"], &example["to"]), (&0.into(), &27.into()));
    assert_eq!(report["census"]["objects"], 3, "{report}");
}
