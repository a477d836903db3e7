//! A signal that the objects which a batch refers to are in the bucket.

use tokio::sync::watch;

/// Whether the objects that a batch refers to are in the bucket, and a way to wait for them. Clones share one state.
#[derive(Clone, Debug)]
pub struct Ready(watch::Receiver<bool>);

/// The sender of the signal. If it is dropped before [`announce`](Arrived::announce), the objects never arrive.
#[derive(Debug)]
pub struct Arrived(watch::Sender<bool>);

impl Ready {
    /// All objects are in the bucket.
    pub fn now() -> Ready {
        Ready(watch::channel(true).1)
    }

    /// The objects will be in the bucket once [`Arrived::announce`] is called.
    pub fn later() -> (Arrived, Ready) {
        let (sender, receiver) = watch::channel(false);
        (Arrived(sender), Ready(receiver))
    }

    /// Waits until the objects are in the bucket or never will be; returns whether they are.
    pub async fn wait(&self) -> bool {
        let mut there = self.0.clone();
        there.wait_for(|there| *there).await.is_ok()
    }

    /// Whether the arrival was announced.
    pub(crate) fn is_there(&self) -> bool {
        *self.0.borrow()
    }

    /// Whether the objects will never arrive.
    pub(crate) fn has_failed(&self) -> bool {
        !self.is_there() && self.0.has_changed().is_err() && !self.is_there()
    }

    /// Whether both share one state.
    pub(crate) fn is_same(&self, other: &Ready) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl Arrived {
    /// Announces that all objects are in the bucket.
    pub fn announce(self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_there_when_that_was_announced_and_never_when_nobody_can() {
        assert!(Ready::now().wait().await && !Ready::now().has_failed());
        let (arrived, ready) = Ready::later();
        let waiting = tokio::spawn({
            let ready = ready.clone();
            async move { ready.wait().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && !ready.is_there() && !ready.has_failed());
        arrived.announce();
        assert!(waiting.await.unwrap());
        assert!(ready.wait().await, "and stays there");
        assert!(ready.is_there() && !ready.has_failed());
        let (arrived, ready) = Ready::later();
        drop(arrived);
        assert!(!ready.wait().await && ready.has_failed());
    }
}
