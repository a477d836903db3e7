//! When the trash has work, the order of those that change it, and how far clients have listed it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_meta::record::Kind;
use forebay_types::Inode;
use forebay_vfs::{ClientId, Credentials, Error, Result, Timestamp, permission};
use forebay_view::convert::owned;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::node::{Node, NodeState};

/// Listings whose progress is known, and for how long: clients ask again after some seconds.
const LISTINGS: usize = 64;
const LISTING_TIME: Duration = Duration::from_secs(60);

/// A place in a listing of the trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedPlace {
    /// The client that lists it: the listings of others begin where they say.
    pub(crate) client: ClientId,
    /// Its user.
    pub(crate) uid: u32,
    /// The directory of whose files it is.
    pub(crate) below: Inode,
    /// The last file that the user knows.
    pub(crate) after: Inode,
}

/// The schedule of the trash.
pub(crate) struct Trash {
    /// When the volume was opened, and the number of changes since.
    opened: Timestamp,
    changes: AtomicU64,
    /// How far listings have come that have found nothing yet.
    listings: Mutex<VecDeque<(ListedPlace, Inode, Instant)>>,
    /// No entry ends before this, in seconds since 1970. 0 until the entries were looked at.
    next: AtomicU64,
    added: Notify,
    /// Objects that were deleted because their time was over, and because room was needed.
    pub(crate) expired: AtomicU64,
    pub(crate) displaced: AtomicU64,
    /// Held by everything that takes entries out of the trash, from the look at them to the change.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl Trash {
    /// That of a volume that is opened `now`.
    pub(crate) fn new(now: Timestamp) -> Trash {
        Trash {
            opened: now,
            changes: AtomicU64::new(0),
            listings: Mutex::default(),
            next: AtomicU64::new(0),
            added: Notify::new(),
            expired: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
            changing: tokio::sync::Mutex::new(()),
        }
    }

    /// A time that changes whenever something goes to the trash or leaves it: a nanosecond for each change.
    pub(crate) fn changed(&self) -> Timestamp {
        const SECOND: u64 = 1_000_000_000;
        let since = u64::from(self.opened.nanos) + self.changes.load(Ordering::Acquire);
        Timestamp {
            seconds: self.opened.seconds + (since / SECOND).cast_signed(),
            nanos: u32::try_from(since % SECOND).unwrap_or(0),
        }
    }

    /// Notes a change.
    pub(crate) fn changed_now(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that nothing is to be listed from this place to `reached`.
    pub(crate) fn listed_nothing(&self, place: ListedPlace, reached: Inode) {
        let mut listings = self.listings.lock();
        listings.retain(|(own, ..)| *own != place);
        if listings.len() == LISTINGS {
            listings.pop_front();
        }
        listings.push_back((place, reached, Instant::now()));
    }

    /// Where a listing goes on that has just found nothing at this place. Only the next call of the client gets the answer, and it
    /// lies before all files of the user that were [added](Trash::added) since: a listing that begins again misses none of them.
    pub(crate) fn go_on(&self, place: ListedPlace) -> Option<Inode> {
        let mut listings = self.listings.lock();
        let at = listings.iter().position(|(own, ..)| *own == place)?;
        let (_, reached, when) = listings.remove(at)?;
        (when.elapsed() < LISTING_TIME).then_some(reached)
    }

    /// Notes that an object of this user is in the trash until then.
    pub(crate) fn added(&self, inode: Inode, uid: u32, until: u64) {
        for (place, reached, _) in &mut *self.listings.lock() {
            // Root passes over files of all: it would never come to the end.
            if place.uid == uid && uid != 0 && inode > place.after {
                *reached = (*reached).min(Inode(inode.0 - 1));
            }
        }
        self.changed_now();
        self.not_before(until);
        self.added.notify_one();
    }

    /// Returns when something was added since the last call.
    pub(crate) async fn wait(&self) {
        self.added.notified().await;
    }

    /// No entry ends before this.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Begins a look at the entries: those that are there end at the returned time or later. The caller notes what it
    /// finds by [`not_before`](Trash::not_before); entries that are added meanwhile note themselves.
    pub(crate) fn begin(&self) -> u64 {
        self.next.swap(u64::MAX, Ordering::AcqRel)
    }

    /// Notes that there is an entry that ends then, or may be.
    pub(crate) fn not_before(&self, until: u64) {
        self.next.fetch_min(until, Ordering::AcqRel);
    }
}

impl Node {
    /// The state of a file in the trash, which the caller sees there.
    pub(crate) fn lock_removed(&self, caller: &Credentials) -> Result<MutexGuard<'_, NodeState>> {
        let state = self.lock();
        if !state.is_in_trash() || state.record.kind() != Kind::Regular {
            return Err(Error::Stale);
        }
        permission::may_see_removed(owned(&state.record), caller)?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(after: u64) -> ListedPlace {
        ListedPlace {
            client: ClientId(1),
            uid: 7,
            below: Inode::ROOT,
            after: Inode(after),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_goes_on_once_and_soon() {
        let trash = Trash::new(Timestamp::default());
        assert_eq!(trash.go_on(place(0)), None);
        trash.listed_nothing(place(0), Inode(50));
        trash.listed_nothing(place(0), Inode(90));
        let others = ListedPlace { uid: 8, ..place(0) };
        assert_eq!(trash.go_on(others), None);
        let elsewhere = ListedPlace {
            client: ClientId(2),
            ..place(0)
        };
        assert_eq!(trash.go_on(elsewhere), None, "another listing");
        assert_eq!(trash.go_on(place(1)), None);
        assert_eq!(trash.go_on(place(0)), Some(Inode(90)));
        assert_eq!(trash.go_on(place(0)), None);
        trash.listed_nothing(place(0), Inode(50));
        tokio::time::advance(LISTING_TIME).await;
        assert_eq!(trash.go_on(place(0)), None, "another listing");
        for after in 0..1000 {
            trash.listed_nothing(place(after), Inode(after + 5));
        }
        assert_eq!(trash.listings.lock().len(), LISTINGS);
        assert_eq!(trash.go_on(place(999)), Some(Inode(1004)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_goes_on_before_what_its_user_has_added_since() {
        let trash = Trash::new(Timestamp::default());
        for (added, goes_on) in [
            (&[][..], 90),
            (&[(90, 7)], 89),
            (&[(91, 7)], 90),
            (&[(60, 7), (40, 7), (70, 7)], 39),
            (&[(11, 7)], 10),
            // It is behind the client already.
            (&[(10, 7)], 90),
            (&[(60, 8), (70, 0)], 90),
        ] {
            trash.listed_nothing(place(10), Inode(90));
            for (inode, uid) in added {
                trash.added(Inode(*inode), *uid, 9);
            }
            assert_eq!(trash.go_on(place(10)), Some(Inode(goes_on)), "{added:?}");
        }
        let roots = ListedPlace {
            uid: 0,
            ..place(10)
        };
        trash.listed_nothing(roots, Inode(90));
        trash.added(Inode(60), 0, 9);
        assert_eq!(trash.go_on(roots), Some(Inode(90)));
    }

    #[test]
    fn each_change_has_a_time_of_its_own() {
        let opened = Timestamp {
            seconds: 5,
            nanos: 999_999_999,
        };
        let trash = Trash::new(opened);
        assert_eq!(trash.changed(), opened);
        trash.added(Inode(5), 7, 9);
        assert_eq!(
            trash.changed(),
            Timestamp {
                seconds: 6,
                nanos: 0
            }
        );
        trash.changed_now();
        assert_eq!(trash.changed().nanos, 1);
    }
}
