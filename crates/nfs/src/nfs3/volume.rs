//! FSSTAT, FSINFO, PATHCONF (RFC 1813, sections 3.3.18 to 3.3.20).

use forebay_vfs::Trees;

use super::{MAX_FILE_BYTES, MAX_NAME_BYTES, Request, Status, wire};
use crate::TRANSFER_BYTES;
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader};

/// Recommended multiple for transfer sizes.
const TRANSFER_MULTIPLE: u32 = 4096;
/// Preferred size of a READDIR reply: some thousand entries.
const DIRECTORY_BYTES: u32 = 64 << 10;
/// FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS, FSF3_CANSETTIME.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;

pub(super) async fn fsstat<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let attributes = target.object.getattr().await?;
        Ok((attributes, target.object.statistics().await?))
    };
    match result.await {
        Ok((attributes, sizes)) => {
            let mut results = reply.results();
            results.status(Status::OK);
            results.post_op(request.ids(target), Some(&attributes));
            results.u64(sizes.total_bytes);
            results.u64(sizes.free_bytes);
            results.u64(sizes.available_bytes);
            results.u64(sizes.total_files);
            results.u64(sizes.free_files);
            results.u64(sizes.available_files);
            // Seconds for which this is expected to stay true: none.
            results.u32(0);
        }
        Err(status) => {
            let attributes = request.attributes(target).await;
            let mut results = reply.results();
            results.status(status);
            results.post_op(request.ids(target), attributes.as_ref());
        }
    }
    Ok(())
}

pub(super) async fn fsinfo<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    arguments.end()?;
    let found = request.getattr(handle).await;
    let mut results = reply.results();
    match found {
        Ok((ids, attributes)) => {
            results.status(Status::OK);
            results.post_op(ids, Some(&attributes));
            // Largest, preferred and multiple size of READ, then of WRITE.
            for _ in 0..2 {
                results.u32(TRANSFER_BYTES);
                results.u32(TRANSFER_BYTES);
                results.u32(TRANSFER_MULTIPLE);
            }
            results.u32(DIRECTORY_BYTES);
            results.u64(MAX_FILE_BYTES);
            // Times are kept to the nanosecond.
            results.u32(0);
            results.u32(1);
            results.u32(PROPERTIES);
        }
        Err(status) => {
            results.status(status);
            results.post_op(request.ids(Err(status)), None);
        }
    }
    Ok(())
}

pub(super) async fn pathconf<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    arguments.end()?;
    let found = request.getattr(handle).await;
    let mut results = reply.results();
    match found {
        Ok((ids, attributes)) => {
            results.status(Status::OK);
            results.post_op(ids, Some(&attributes));
            results.u32(forebay_vfs::LINK_MAX);
            results.u32(MAX_NAME_BYTES);
            // Long names are refused and not truncated (no_trunc); only root may change the owner
            // (chown_restricted); names are case-sensitive and keep their case.
            results.bool(true);
            results.bool(true);
            results.bool(false);
            results.bool(true);
        }
        Err(status) => {
            results.status(status);
            results.post_op(request.ids(Err(status)), None);
        }
    }
    Ok(())
}
