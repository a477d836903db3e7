//! READ, WRITE, COMMIT (RFC 1813, sections 3.3.6, 3.3.7, 3.3.21).

use forebay_types::bounded_u32;
use forebay_vfs::{ReadReply, Stability, Trees};

use super::request::Target;
use super::{MAX_FILE_BYTES, Request, Status, wire};
use crate::TRANSFER_BYTES;
use crate::handle::Tree;
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader};

/// Offset and count of READ. A larger count gets a short read; FSINFO announces the limit.
fn wanted(arguments: &mut Reader<'_>) -> Result<(u64, u32), Malformed> {
    Ok((arguments.u64()?, arguments.u32()?.min(TRANSFER_BYTES)))
}

pub(super) async fn read<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    let (offset, count) = wanted(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let caller = request.identity(target)?;
        Ok((target, target.object.read(&caller, offset, count).await?))
    };
    match result.await {
        Ok((target, read)) => answer_read(request, target, read, reply),
        Err(status) => {
            let attributes = request.attributes(target).await;
            let mut results = reply.results();
            results.status(status);
            results.post_op(request.ids(target), attributes.as_ref());
        }
    }
    Ok(())
}

/// Executes a READ if its data is in memory. Otherwise nothing is appended, whatever the reason.
pub(super) fn read_in_memory<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Option<()> {
    let handle = wire::handle(&mut arguments).ok()?;
    let (offset, count) = wanted(&mut arguments).ok()?;
    arguments.end().ok()?;
    let target = request.target(handle).ok()?;
    let caller = request.identity(target).ok()?;
    let read = target.object.read_in_memory(&caller, offset, count)?;
    answer_read(request, target, read, reply);
    Some(())
}

fn answer_read<F: Trees>(
    request: &Request<'_, F>,
    target: Target<'_, F>,
    read: ReadReply,
    reply: &mut Reply,
) {
    let bytes: usize = read.data.iter().map(|piece| piece.len()).sum();
    request.metrics.read_bytes.add(bytes as u64);
    if target.object.tree == Tree::Live {
        request
            .metrics
            .files
            .read(target.object.inode, bytes as u64);
    }
    let mut results = reply.results();
    results.status(Status::OK);
    results.post_op(request.ids(Ok(target)), Some(&read.attributes));
    results.u32(bounded_u32(bytes));
    results.bool(read.eof);
    reply.data(read.data);
}

pub(super) async fn write<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    let offset = arguments.u64()?;
    let count = arguments.u32()?;
    let stability = match arguments.u32()? {
        0 => Stability::Unstable,
        1 => Stability::DataSync,
        2 => Stability::FileSync,
        _ => return Err(Malformed),
    };
    let data = arguments.opaque(usize::MAX)?;
    arguments.end()?;
    // The data has a length of its own. If the two disagree, the call is ambiguous.
    if data.len() != count as usize {
        return Err(Malformed);
    }
    // A WRITE longer than FSINFO allows is done in part; the count in the reply says so.
    let (data, _) = data.split_at(data.len().min(TRANSFER_BYTES as usize));
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let caller = request.identity(target)?;
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > MAX_FILE_BYTES) {
            return Err(Status::FBIG);
        }
        let (fs, inode) = target.to_change()?;
        let written = fs.write(&caller, inode, offset, data, stability);
        Ok((inode, written.await?))
    };
    match result.await {
        Ok((inode, written)) => {
            let bytes = u64::from(written.count);
            request.metrics.written_bytes.add(bytes);
            request.metrics.files.written(inode, bytes);
            let mut results = reply.results();
            results.status(Status::OK);
            results.change(request.ids(target), &written.change);
            results.u32(written.count);
            results.u32(match written.stability {
                Stability::Unstable => 0,
                Stability::DataSync => 1,
                Stability::FileSync => 2,
            });
            results.fixed(&written.verifier.0);
        }
        Err(status) => {
            let change = request.unchanged(target).await;
            let mut results = reply.results();
            results.status(status);
            results.change(request.ids(target), &change);
        }
    }
    Ok(())
}

pub(super) async fn commit<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    let offset = arguments.u64()?;
    let count = arguments.u32()?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let caller = request.identity(target)?;
        Ok(target.object.commit(&caller, offset, count).await?)
    };
    match result.await {
        Ok((change, verifier)) => {
            let mut results = reply.results();
            results.status(Status::OK);
            results.change(request.ids(target), &change);
            results.fixed(&verifier.0);
        }
        Err(status) => {
            let change = request.unchanged(target).await;
            let mut results = reply.results();
            results.status(status);
            results.change(request.ids(target), &change);
        }
    }
    Ok(())
}
