//! REMOVE, RMDIR, RENAME, LINK (RFC 1813, sections 3.3.12 to 3.3.15).

use forebay_vfs::{Change, FileSystem};

use super::{Request, Status, wire};
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader};

pub(super) async fn remove<F: FileSystem>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let caller = request.identity(target)?;
        wire::check_name(name)?;
        // These names denote directories, and only RMDIR has errors of its own for them.
        if matches!(name, b"." | b"..") {
            return Err(Status::ACCES);
        }
        Ok(target.fs.remove(&caller, target.inode, name).await?)
    };
    let (status, change) = match result.await {
        Ok(change) => (Status::OK, change),
        Err(status) => (status, request.unchanged(target).await),
    };
    answer(request, status, &[change], reply);
    Ok(())
}

pub(super) async fn rmdir<F: FileSystem>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let caller = request.identity(target)?;
        wire::check_name(name)?;
        Ok(target.fs.rmdir(&caller, target.inode, name).await?)
    };
    let (status, change) = match result.await {
        Ok(change) => (Status::OK, change),
        Err(status) => (status, request.unchanged(target).await),
    };
    answer(request, status, &[change], reply);
    Ok(())
}

pub(super) async fn rename<F: FileSystem>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (from_handle, from_name) = wire::name(&mut arguments)?;
    let (to_handle, to_name) = wire::name(&mut arguments)?;
    arguments.end()?;
    let (from, to) = (request.target(from_handle), request.target(to_handle));
    let result = async {
        let (from, to) = (from?, to?);
        if from.grant != to.grant {
            return Err(Status::XDEV);
        }
        let caller = request.identity(from)?;
        wire::check_name(from_name)?;
        wire::check_name(to_name)?;
        let (old, new) = ((from.inode, from_name), (to.inode, to_name));
        Ok(from.fs.rename(&caller, old, new).await?)
    };
    let (status, from, to) = match result.await {
        Ok((from, to)) => (Status::OK, from, to),
        Err(status) => {
            let from = request.unchanged(from).await;
            (status, from, request.unchanged(to).await)
        }
    };
    answer(request, status, &[from, to], reply);
    Ok(())
}

pub(super) async fn link<F: FileSystem>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    let (directory_handle, name) = wire::name(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let directory = request.target(directory_handle);
    let result = async {
        let (target, directory) = (target?, directory?);
        if target.grant != directory.grant {
            return Err(Status::XDEV);
        }
        let caller = request.identity(target)?;
        wire::check_name(name)?;
        let link = target.fs.link(&caller, target.inode, directory.inode, name);
        Ok(link.await?)
    };
    let (status, attributes, change) = match result.await {
        Ok((attributes, change)) => (Status::OK, Some(attributes), change),
        Err(status) => {
            let attributes = request.attributes(target).await;
            (status, attributes, request.unchanged(directory).await)
        }
    };
    let mut results = reply.results();
    results.status(status);
    results.post_op(request.handles, attributes.as_ref());
    results.change(request.handles, &change);
    Ok(())
}

fn answer<F>(request: &Request<'_, F>, status: Status, changes: &[Change], reply: &mut Reply) {
    let mut results = reply.results();
    results.status(status);
    for change in changes {
        results.change(request.handles, change);
    }
}
