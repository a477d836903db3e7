//! When what a batch refers to is in the bucket.

use tokio::sync::watch;

/// Whether what a batch refers to is in the bucket, and a way to wait for it. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Ready(watch::Receiver<bool>);

/// Who has this says when it has arrived. Dropped before that, it never will have.
#[derive(Debug)]
pub struct Arrived(watch::Sender<bool>);

impl Ready {
    /// All of it is there.
    pub fn now() -> Ready {
        Ready(watch::channel(true).1)
    }

    /// It will be there as soon as that is announced.
    pub fn later() -> (Arrived, Ready) {
        let (sender, receiver) = watch::channel(false);
        (Arrived(sender), Ready(receiver))
    }

    /// Returns when it is there, or never will be; says which.
    pub async fn wait(&self) -> bool {
        let mut there = self.0.clone();
        there.wait_for(|there| *there).await.is_ok()
    }

    /// Whether that was announced.
    pub(crate) fn is_there(&self) -> bool {
        *self.0.borrow()
    }

    /// Whether it never will be there.
    pub(crate) fn has_failed(&self) -> bool {
        !self.is_there() && self.0.has_changed().is_err() && !self.is_there()
    }

    /// Whether both tell of the same.
    pub(crate) fn is_same(&self, other: &Ready) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl Arrived {
    /// All of it is there.
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
