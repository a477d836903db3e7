//! How a writer handles an answer.

use forebay_client::{Answer, Failure, Found, Reply, Status, Verifier};

use super::{Writer, Wrong, is_stable, open_book};
use crate::content::DataOp;
use crate::gate::count;
use crate::ledger::{Identity, Pending, Unstable};
use crate::tree::{NameOp, NodeId};

impl Writer {
    /// Records the server's answer, which must be one that the ledger allows.
    pub(super) fn answered(&mut self, answer: Answer) -> Result<(), Wrong> {
        let Answer { call, sent, reply } = answer;
        let pending = open_book(&self.ledger).pending.remove(&call);
        let pending = pending.ok_or(Wrong::Lost(call))?;
        if sent > 1 {
            count(&self.shared.counts.repeated, 1);
        }
        let repeated = self.repeated.remove(&call) || sent > 1;
        if reply.clone().done() == Err(Failure::Status(Status::JUKEBOX)) {
            return self.again(call, pending, repeated);
        }
        match &pending {
            Pending::Name { op, done } => self.name_answered(op, *done, repeated, reply)?,
            Pending::Data { .. } => self.data_answered(&pending, reply)?,
            Pending::Commit {
                node,
                covers,
                ranges,
            } => self.commit_answered(*node, covers, *ranges, reply)?,
            Pending::Read {
                node,
                part,
                offset,
                expected,
            } => self.read_answered(*node, *part, *offset, expected, reply)?,
        }
        if is_stable(&pending) {
            self.shared
                .stable_calls
                .fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
        }
        count(&self.shared.counts.answered, 1);
        Ok(())
    }

    fn name_answered(
        &mut self,
        op: &NameOp,
        done: Option<bool>,
        repeated: bool,
        reply: Reply,
    ) -> Result<(), Wrong> {
        let makes = match op {
            NameOp::Make { node, .. } => Some(*node),
            _ => None,
        };
        let known = match op {
            NameOp::Make { .. } | NameOp::Link { .. } => Status::EXIST,
            NameOp::Rename { .. } | NameOp::Remove { .. } => Status::NOENT,
        };
        let result: Result<Option<Found>, Failure> = match makes {
            Some(_) => reply.made().map(Some),
            None => reply.done().map(|()| None),
        };
        let found = match result {
            Ok(found) => found,
            // Correct only if an earlier attempt may have been executed. If a comparison has shown that none was, this
            // is an error.
            Err(Failure::Status(status)) if status == known && repeated && done != Some(false) => {
                count(&self.shared.counts.known_repeats, 1);
                None
            }
            Err(failure) => {
                return Err(Wrong::Refused {
                    what: format!("{op:?} (found executed before: {done:?}, repeated: {repeated})"),
                    failure,
                });
            }
        };
        let mut ledger = open_book(&self.ledger);
        let now = self.shared.clock.tick();
        if let (Some(node), Some(found)) = (makes, found)
            && let Some(attributes) = found.attributes
        {
            let identity = Identity {
                handle: found.handle,
                fileid: attributes.fileid,
            };
            if let Some(before) = ledger.identities.get(&node)
                && *before != identity
            {
                return Err(Wrong::Answer {
                    what: format!("{op:?}"),
                    why: format!("{identity:?}, which was {before:?}"),
                });
            }
            ledger.identities.insert(node, identity);
        }
        ledger.name_answered(op, done == Some(true), now);
        let gone: Vec<NodeId> = ledger.files.keys().copied().collect();
        for node in gone {
            let named = ledger.tree.kinds.contains_key(&node);
            if let Some(file) = ledger.files.get_mut(&node)
                && !named
            {
                file.unstable.clear();
            }
        }
        drop(ledger);
        self.count_stable(1);
        Ok(())
    }

    fn data_answered(&mut self, pending: &Pending, reply: Reply) -> Result<(), Wrong> {
        let Pending::Data {
            node,
            parts,
            op,
            stable,
            ..
        } = pending
        else {
            return Ok(());
        };
        let what = || match op {
            DataOp::Write { offset, length, .. } => {
                format!("WRITE of {length} bytes at {offset} of {node:?}")
            }
            other => format!("SETATTR {other:?} of {node:?}"),
        };
        let refused = |failure| Wrong::Refused {
            what: what(),
            failure,
        };
        let wrong = |why: String| Wrong::Answer { what: what(), why };
        let mut unstable = None;
        let attributes = match op {
            DataOp::Write { offset, length, .. } => {
                let written = reply.written().map_err(refused)?;
                if written.count as usize != *length {
                    return Err(wrong(format!("{} bytes were taken", written.count)));
                }
                let is_stable = written.stable > forebay_client::Stable::Unstable;
                if *stable && !is_stable {
                    return Err(wrong("less stable than was asked for".to_owned()));
                }
                self.check_verifier(&what(), written.verifier)?;
                if !is_stable {
                    unstable = Some(Unstable {
                        part: parts.first().copied().unwrap_or_default(),
                        offset: *offset,
                        length: *length,
                        verifier: written.verifier,
                    });
                }
                written.attributes
            }
            _ => reply.changed().map_err(refused)?,
        };
        let mut ledger = open_book(&self.ledger);
        let now = self.shared.clock.tick();
        ledger.data_answered(pending, now, attributes.map(|found| found.mtime));
        if let Some(file) = ledger.files.get_mut(node) {
            file.unstable.extend(unstable);
        }
        drop(ledger);
        if *stable {
            self.count_stable(1);
        }
        Ok(())
    }

    fn commit_answered(
        &mut self,
        node: NodeId,
        covers: &[usize],
        ranges: usize,
        reply: Reply,
    ) -> Result<(), Wrong> {
        let what = format!("COMMIT of {node:?}");
        let verifier = reply.committed().map_err(|failure| Wrong::Refused {
            what: what.clone(),
            failure,
        })?;
        self.check_verifier(&what, verifier)?;
        count(&self.shared.counts.commits, 1);
        let mut stable = 0;
        let mut ledger = open_book(&self.ledger);
        if let Some(file) = ledger.files.get_mut(&node) {
            file.committing = false;
            let mut index = 0;
            file.unstable.retain(|range| {
                index += 1;
                let committed = index <= ranges && range.verifier == verifier;
                stable += usize::from(committed);
                !committed
            });
            for (part, covered) in file.parts.iter_mut().zip(covers) {
                part.history.stable = part.history.stable.max(*covered);
            }
        }
        drop(ledger);
        self.count_stable(stable);
        Ok(())
    }

    /// One server has one verifier.
    fn check_verifier(&mut self, what: &str, verifier: Verifier) -> Result<(), Wrong> {
        self.told = Some(verifier);
        match self.shared.verifier() {
            Some(expected) if expected != verifier => Err(Wrong::Answer {
                what: what.to_owned(),
                why: format!("verifier {verifier:02x?}, and the server's is {expected:02x?}"),
            }),
            _ => Ok(()),
        }
    }

    fn read_answered(
        &mut self,
        node: NodeId,
        part: usize,
        offset: u64,
        expected: &[u8],
        reply: Reply,
    ) -> Result<(), Wrong> {
        let what = format!("READ of {} bytes at {offset} of {node:?}", expected.len());
        let (data, _) = reply.data().map_err(|failure| Wrong::Refused {
            what: what.clone(),
            failure,
        })?;
        if data != expected {
            let at = data.iter().zip(expected).position(|(a, b)| a != b);
            return Err(Wrong::Answer {
                what,
                why: format!("{} bytes, the first wrong one at {at:?}", data.len()),
            });
        }
        count(&self.shared.counts.read_back, data.len() as u64);
        if let Some(part) = open_book(&self.ledger).part(node, part) {
            part.busy = false;
        }
        Ok(())
    }
}
