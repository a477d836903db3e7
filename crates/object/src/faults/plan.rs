//! Decides which request fails, and how.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Gate;

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// HTTP 500, without effect.
    ServerError,
    /// HTTP 503 with the code `SlowDown`, without effect.
    SlowDown,
    /// No answer, ever, and no effect.
    Hang,
    /// The connection breaks before the request has any effect.
    Reset,
    /// The body of a get ends early, as if that were its end.
    ShortBody,
    /// One bit in the body of a get is flipped.
    WrongBytes,
    /// A put, a delete or a copy takes effect, and is answered with HTTP 500.
    LostAnswer,
    /// A listing repeats an earlier one of the same prefix.
    StaleList,
    /// A get is answered as if the object ended before the requested range (HTTP 416).
    SeemsCut,
    /// HTTP 403 for lack of permission, without effect.
    Refused,
}

impl FaultKind {
    /// All kinds that may hit any request at any time. Not [`SeemsCut`](Self::SeemsCut), which, twice in a
    /// row, looks like a damaged bucket, and not [`Refused`](Self::Refused), which lasts until a person acts.
    pub const ALL: [FaultKind; 8] = [
        FaultKind::ServerError,
        FaultKind::SlowDown,
        FaultKind::Hang,
        FaultKind::Reset,
        FaultKind::ShortBody,
        FaultKind::WrongBytes,
        FaultKind::LostAnswer,
        FaultKind::StaleList,
    ];

    /// Whether this fault can hit `request`.
    pub fn applies_to(self, request: Request) -> bool {
        match self {
            FaultKind::ShortBody | FaultKind::WrongBytes | FaultKind::SeemsCut => {
                request == Request::Get
            }
            FaultKind::LostAnswer => {
                matches!(request, Request::Put | Request::Delete | Request::Copy)
            }
            FaultKind::StaleList => request == Request::List,
            _ => true,
        }
    }
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Getting an object, a range of it, or its metadata.
    Get,
    /// Putting one, in one piece or in parts.
    Put,
    /// Deleting one.
    Delete,
    /// Listing.
    List,
    /// Copying one.
    Copy,
}

/// Number of injected faults of each kind.
pub type Injected = BTreeMap<FaultKind, u64>;

/// The faults and gates of a test; shared by all [`FaultyStore`]s made with it.
#[derive(Debug, Default)]
pub struct Faults {
    /// Before every request but listings.
    pub everything: Gate,
    /// Before packs are put.
    pub pack_puts: Gate,
    /// Before packs are read.
    pub pack_gets: Gate,
    /// Before a request that asks only whether a pack is there.
    pub pack_looks: Gate,
    /// Before anything but packs is put: the metadata.
    pub meta_puts: Gate,
    /// Before a manifest is put, the moment at which a commit takes effect.
    pub manifest_puts: Gate,
    /// Before packs are deleted.
    pub pack_deletes: Gate,
    /// The gate before reads of packs holds only objects whose names contain this.
    pack_gets_of: Mutex<String>,
    down: AtomicBool,
    /// Number of requests that are served before the store goes down by itself.
    served_before: Mutex<Option<u64>>,
    deletes_refused: AtomicBool,
    plan: Mutex<Plan>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    bytes_in_flight: AtomicUsize,
    most_bytes_in_flight: AtomicUsize,
    refused: AtomicUsize,
    pack_lists: AtomicUsize,
}

#[derive(Debug, Default)]
struct Plan {
    seed: u64,
    /// Kinds, and how many of a million requests they hit.
    probabilities: Vec<(FaultKind, u64)>,
    /// Random faults hit only objects whose names contain this.
    only: String,
    script: Vec<Scripted>,
    /// Number of requests for each object.
    asked: HashMap<(Request, String), u64>,
    injected: Injected,
}

#[derive(Debug)]
struct Scripted {
    request: Request,
    name: String,
    kind: FaultKind,
    left: u64,
}

impl Faults {
    /// From now on `kind` hits each request that it applies to with this probability, 0 to 1.
    pub fn fail_at_random(&self, kind: FaultKind, probability: f64) {
        let mut plan = self.plan.lock();
        plan.probabilities.retain(|(other, _)| *other != kind);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a probability is 0 to 1"
        )]
        plan.probabilities.push((kind, (probability * 1e6) as u64));
    }

    /// Sets the seed: it decides, together with an object's name and the number of its requests, whether a request is
    /// hit at random.
    pub fn seed(&self, seed: u64) {
        self.plan.lock().seed = seed;
    }

    /// Restricts random faults to objects whose names contain `part`.
    pub fn only(&self, part: &str) {
        self.plan.lock().only = part.to_owned();
    }

    /// Restricts the gate before reads of packs to objects whose names contain `part`.
    pub fn hold_gets_of(&self, part: &str) {
        *self.pack_gets_of.lock() = part.to_owned();
    }

    /// Lets a read of a pack through its gate.
    pub(super) async fn pass_pack_get(&self, name: &str) {
        let is_held = name.contains(&*self.pack_gets_of.lock());
        self.pack_gets.pass_if(is_held).await;
    }

    /// Hits the next `times` requests of this kind, for objects whose names contain `name`.
    pub fn next(&self, request: Request, name: &str, kind: FaultKind, times: u64) {
        self.plan.lock().script.push(Scripted {
            request,
            name: name.to_owned(),
            kind,
            left: times,
        });
    }

    /// Makes every request fail, as if there were no server, or ends that.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Serves this many further requests, and then fails each one, as if there were no server.
    pub fn set_down_after(&self, requests: u64) {
        *self.served_before.lock() = Some(requests);
    }

    /// Whether requests fail as if there were no server.
    pub fn has_gone_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    /// Makes deletes fail for lack of permission, or ends that.
    pub fn set_deletes_refused(&self, refused: bool) {
        self.deletes_refused.store(refused, Ordering::SeqCst);
    }

    /// Ends all faults; the counts of injected ones stay.
    pub fn heal(&self) {
        *self.served_before.lock() = None;
        self.set_down(false);
        self.set_deletes_refused(false);
        let mut plan = self.plan.lock();
        plan.probabilities.clear();
        plan.script.clear();
    }

    /// Number of injected faults of each kind.
    pub fn injected(&self) -> Injected {
        self.plan.lock().injected.clone()
    }

    /// Requests that were refused because the store was down.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// Number of listings of the packs that are complete: a pack that arrives later is in none of them.
    pub fn pack_lists(&self) -> usize {
        self.pack_lists.load(Ordering::SeqCst)
    }

    /// Maximum number of requests in flight since the last call.
    pub fn take_most_in_flight(&self) -> usize {
        self.most_in_flight
            .swap(self.in_flight.load(Ordering::SeqCst), Ordering::SeqCst)
    }

    /// Maximum number of bytes of PUTs in flight since the last call.
    pub fn take_most_bytes_in_flight(&self) -> usize {
        self.most_bytes_in_flight.swap(
            self.bytes_in_flight.load(Ordering::SeqCst),
            Ordering::SeqCst,
        )
    }

    pub(super) fn is_down(&self) -> bool {
        match &mut *self.served_before.lock() {
            Some(0) => self.set_down(true),
            Some(left) => *left -= 1,
            None => {}
        }
        let down = self.down.load(Ordering::SeqCst);
        if down {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        down
    }

    /// Counts a listing of the packs.
    pub(super) fn packs_listed(&self) {
        self.pack_lists.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn refuses_deletes(&self) -> bool {
        self.deletes_refused.load(Ordering::SeqCst)
    }

    pub(super) fn under_way(&self) -> RequestInFlight<'_> {
        self.under_way_with(0)
    }

    /// Counts a request in flight that puts this number of bytes.
    pub(super) fn under_way_with(&self, bytes: usize) -> RequestInFlight<'_> {
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        let now = self.bytes_in_flight.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.most_bytes_in_flight.fetch_max(now, Ordering::SeqCst);
        RequestInFlight {
            faults: self,
            bytes,
        }
    }

    /// The fault for this request, and a number drawn for it.
    pub(super) fn draw(&self, request: Request, name: &str) -> (Option<FaultKind>, u64) {
        let mut plan = self.plan.lock();
        let asked = plan.asked.entry((request, name.to_owned())).or_default();
        *asked += 1;
        let key = (request as u64) << 56 ^ *asked;
        let mut drawn = mix(plan.seed ^ mix(key));
        for byte in name.bytes() {
            drawn = mix(drawn ^ u64::from(byte));
        }
        let by_chance = name.contains(&plan.only);
        let scripted = plan.script.iter_mut().find(|scripted| {
            scripted.request == request && scripted.left > 0 && name.contains(&scripted.name)
        });
        let kind = match scripted {
            Some(scripted) => {
                scripted.left -= 1;
                Some(scripted.kind)
            }
            None if !by_chance => None,
            None => {
                let mut at = drawn % 1_000_000;
                let mut hit = None;
                for (kind, parts) in &plan.probabilities {
                    if !kind.applies_to(request) {
                        continue;
                    }
                    if at < *parts {
                        hit = Some(*kind);
                        break;
                    }
                    at -= parts;
                }
                hit
            }
        };
        (kind, mix(drawn))
    }

    /// Counts a fault that a request really received.
    pub(super) fn injected_one(&self, kind: FaultKind) {
        *self.plan.lock().injected.entry(kind).or_default() += 1;
    }
}

/// A request in flight.
pub(super) struct RequestInFlight<'a> {
    faults: &'a Faults,
    bytes: usize,
}

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        self.faults.in_flight.fetch_sub(1, Ordering::SeqCst);
        let bytes = &self.faults.bytes_in_flight;
        bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// The finisher of splitmix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64) -> Vec<Option<FaultKind>> {
        let faults = Faults::default();
        faults.seed(seed);
        faults.fail_at_random(FaultKind::ServerError, 0.1);
        faults.fail_at_random(FaultKind::WrongBytes, 0.2);
        (0..10_000)
            .map(|i| faults.draw(Request::Get, &format!("object {}", i % 100)).0)
            .collect()
    }

    #[test]
    fn random_faults_keep_to_the_probabilities_and_to_the_seed() {
        let drawn = draws(1);
        let count = |kind| drawn.iter().filter(|one| **one == kind).count();
        assert!((800..1200).contains(&count(Some(FaultKind::ServerError))));
        assert!((1700..2300).contains(&count(Some(FaultKind::WrongBytes))));
        assert_eq!(drawn, draws(1));
        assert_ne!(drawn, draws(2));
    }

    #[test]
    fn a_script_hits_the_next_requests_that_it_names_and_no_others() {
        let faults = Faults::default();
        faults.next(Request::Put, "packs/", FaultKind::Reset, 2);
        let put = |name| faults.draw(Request::Put, name).0;
        assert_eq!(put("meta/1"), None);
        assert_eq!(put("packs/1"), Some(FaultKind::Reset));
        assert_eq!(faults.draw(Request::Get, "packs/1").0, None);
        assert_eq!(put("packs/2"), Some(FaultKind::Reset));
        assert_eq!(put("packs/3"), None);
    }
}
