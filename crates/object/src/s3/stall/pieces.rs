//! The body of a request, sent in pieces.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Upload;
// Small enough that an uplink of 64 KiB/s takes one per second, large enough that splitting costs nothing compared with
// sending; the connection gathers several for one system call.
use crate::link::{PIECE, Permits};

/// The bytes of `body` unchanged, at most [`PIECE`] of them at a time and without copies; notes when each piece was
/// taken. If the link has a limit, each waits for its permit.
pub(super) struct Pieces {
    body: SdkBody,
    /// Bytes of `body` that were not taken yet.
    rest: Bytes,
    upload: Arc<Mutex<Upload>>,
    permits: Option<Permits>,
}

impl Pieces {
    pub(super) fn new(
        body: SdkBody,
        upload: Arc<Mutex<Upload>>,
        permits: Option<Permits>,
    ) -> Pieces {
        Pieces {
            body,
            rest: Bytes::new(),
            upload,
            permits,
        }
    }

    fn took(&self, bytes: usize, is_whole: bool) {
        let now = Instant::now();
        self.upload.lock().took(bytes as u64, is_whole, now);
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = <SdkBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => {
                    self.took(0, true);
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        }
        let len = self.rest.len().min(PIECE);
        if let Some(permits) = &mut self.permits
            && permits.poll(len, cx).is_pending()
        {
            self.upload.lock().held();
            return Poll::Pending;
        }
        let piece = self.rest.split_to(len);
        // The connection need not poll again once this reports the end.
        self.took(len, self.is_end_stream());
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
