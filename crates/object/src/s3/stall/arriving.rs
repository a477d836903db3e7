//! The body of an answer, slowed down to the limit of the link.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::GivenUp;
use crate::link::{PIECE, Permits};

/// A reader that polls later than this after the deadline was busy elsewhere, and the connection is not at fault.
const AWAY: Duration = Duration::from_secs(1);

/// The bytes of `body` unchanged, in pieces that have waited for their permit. The connection reads on when they are
/// taken, which slows the server down.
///
/// The SDK would take that wait for a stalled connection, so this detects stalls itself: a body of which nothing
/// arrives for the time limit ends with an error.
pub(super) struct Arriving {
    body: SdkBody,
    /// Bytes of `body` that have not had their permit yet.
    rest: Bytes,
    permits: Permits,
    stall_limit: Duration,
    /// Runs out when nothing has arrived for too long; `None` while bytes are available.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Arriving {
    pub(super) fn new(body: SdkBody, permits: Permits, stall_limit: Duration) -> Arriving {
        Arriving {
            body,
            rest: Bytes::new(),
            permits,
            stall_limit,
            stalled: None,
        }
    }

    /// Whether nothing has arrived for too long; called when nothing has arrived.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<GivenUp> {
        let limit = self.stall_limit;
        loop {
            let deadline = Instant::now() + limit;
            let stalled = self
                .stalled
                .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if stalled.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() <= stalled.deadline() + AWAY {
                return Poll::Ready(GivenUp::AnswerStalled { limit });
            }
            self.stalled = None;
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = <SdkBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        while self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {
                    let given_up = std::task::ready!(self.poll_stalled(cx));
                    return Poll::Ready(Some(Err(given_up.into())));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => {
                    self.stalled = None;
                    match frame.into_data() {
                        Ok(data) => self.rest = data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    }
                }
            }
        }
        let len = self.rest.len().min(PIECE);
        std::task::ready!(self.permits.poll(len, cx));
        let piece = self.rest.split_to(len);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut sum = SizeHint::new();
        sum.set_lower(hint.lower().saturating_add(rest));
        if let Some(upper) = hint.upper() {
            sum.set_upper(upper.saturating_add(rest));
        }
        sum
    }
}
