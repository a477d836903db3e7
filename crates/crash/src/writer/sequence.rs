//! Chooses the next operation of the sequencer: it writes a counter to one file, then to another, then renames their
//! marker, then replaces the file of the former number by one with the new number. The state found must be one moment
//! of this sequence.

use std::sync::Arc;

use super::operation::{MODE, SMALL, data, make};
use crate::content::{DataOp, Payload};
use crate::ledger::{File, Ledger, Pending};
use crate::tree::{Kind, NameOp, OWN, Place, SHARED};

/// The next operation; `turn` counts them.
pub(super) fn next(ledger: &mut Ledger, turn: &mut u64) -> Option<Pending> {
    let own = |name: &str| Place {
        directory: OWN,
        name: name.to_owned(),
    };
    for name in ["a", "b", "marker-0"] {
        let marker = |place: &&Place| place.directory == OWN && place.name.starts_with("marker-");
        let there = match name {
            "marker-0" => ledger.tree.names.keys().any(|place| marker(&place)),
            _ => ledger.tree.names.contains_key(&own(name)),
        };
        if !there {
            let node = ledger.new_node();
            ledger.files.insert(node, File::new(0, 0, SMALL, MODE));
            let op = make(own(name), node, Kind::File);
            return Some(Pending::Name { op, done: None });
        }
    }
    *turn += 1;
    let number = *turn / 5;
    let counter = |ledger: &Ledger, name: &str| {
        let node = *ledger.tree.names.get(&own(name))?;
        let op = DataOp::Write {
            offset: number * 64 % SMALL,
            length: 64,
            payload: Payload::Bytes(Arc::from(format!("{number:>63}\n").into_bytes())),
        };
        Some(data(node, vec![0], op, number.is_multiple_of(4)))
    };
    let find = |start: &str, shared: bool| {
        let directory = if shared { SHARED } else { OWN };
        ledger
            .tree
            .names
            .keys()
            .find(|place| place.directory == directory && place.name.starts_with(start))
            .cloned()
    };
    // Not the names that a phase of names leaves there: those may be directories, and not empty.
    let in_shared = format!("w{}-turn-", ledger.writer);
    let op = match *turn % 5 {
        0 => return counter(ledger, "a"),
        1 => return counter(ledger, "b"),
        2 => NameOp::Rename {
            from: find("marker-", false)?,
            to: own(&format!("marker-{}", ledger.new_node().0)),
        },
        3 => {
            let node = ledger.new_node();
            ledger.files.insert(node, File::new(0, 0, SMALL, MODE));
            let place = Place {
                directory: SHARED,
                name: format!("{in_shared}{}", node.0),
            };
            make(place, node, Kind::File)
        }
        _ => {
            // Two of the files stay.
            let names = ledger.tree.names.keys();
            let mine = names.filter(|place| place.name.starts_with(&in_shared));
            let mine: Vec<_> = mine.cloned().collect();
            match &mine[..] {
                [first, _, _, ..] => NameOp::Remove {
                    place: first.clone(),
                },
                _ => return None,
            }
        }
    };
    Some(Pending::Name { op, done: None })
}

#[cfg(test)]
mod tests {
    use forebay_client::Handle;

    use super::*;
    use crate::history::State;
    use crate::ledger::Identity;
    use crate::tree::NodeId;

    #[test]
    fn what_a_phase_of_names_has_left_is_not_removed() {
        let identity = |fileid| Identity {
            handle: Handle(Vec::new()),
            fileid,
        };
        let mut ledger = Ledger::new(0, identity(1), identity(2));
        let full = ledger.new_node();
        for (directory, name, node, kind) in [
            (SHARED, "w0-n369", full, Kind::Directory),
            (full, "n661", ledger.new_node(), Kind::File),
            (SHARED, "w0-n375", ledger.new_node(), Kind::File),
            (SHARED, "w0-n376", ledger.new_node(), Kind::File),
        ] {
            let name = name.to_owned();
            ledger
                .tree
                .apply(&make(Place { directory, name }, node, kind));
        }
        // The first step after the three files are made is a removal, before any name of this kind exists.
        let (mut turn, mut removed) = (3, Vec::new());
        for _ in 0..100 {
            if let Some(Pending::Name { op, .. }) = next(&mut ledger, &mut turn) {
                if let NameOp::Remove { place } = &op {
                    removed.push(ledger.tree.names[place]);
                }
                ledger.tree.apply(&op);
            }
        }
        assert!(removed.len() > 10);
        assert!(
            removed.iter().all(|node| *node > NodeId(full.0 + 3)),
            "{removed:?}"
        );
    }
}
