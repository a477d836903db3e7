//! GETATTR, SETATTR, ACCESS (RFC 1813, sections 3.3.1, 3.3.2, 3.3.4).

use forebay_vfs::{Access, Trees};

use super::{Request, Status, wire};
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader};

/// The rights that ACCESS knows.
const ALL_RIGHTS: u32 = 0x3f;

pub(super) async fn getattr<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    arguments.end()?;
    let result = request.getattr(handle).await;
    let mut results = reply.results();
    match result {
        Ok((ids, attributes)) => {
            results.status(Status::OK);
            results.attributes(ids, &attributes);
        }
        Err(status) => results.status(status),
    }
    Ok(())
}

pub(super) async fn setattr<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    let set = wire::set_attributes(&mut arguments)?;
    let guard = arguments.option(wire::time)?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let caller = request.identity(target)?;
        wire::check(&set)?;
        let (fs, inode) = target.to_change()?;
        let change = fs.setattr(&caller, inode, &set, guard);
        Ok(change.await?)
    };
    let (status, change) = match result.await {
        Ok(change) => (Status::OK, change),
        Err(status) => (status, request.unchanged(target).await),
    };
    let mut results = reply.results();
    results.status(status);
    results.change(request.ids(target), &change);
    Ok(())
}

pub(super) async fn access<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    let wanted = Access(arguments.u32()? & ALL_RIGHTS);
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let caller = request.identity(target)?;
        let asked = request.allowed(target, wanted);
        Ok(target.object.access(&caller, asked).await?)
    };
    match result.await {
        Ok((granted, attributes)) => {
            let mut results = reply.results();
            results.status(Status::OK);
            results.post_op(request.ids(target), Some(&attributes));
            results.u32(granted.0);
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
