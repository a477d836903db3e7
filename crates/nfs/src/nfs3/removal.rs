//! REMOVE, RMDIR, RENAME, LINK (RFC 1813, sections 3.3.12 to 3.3.15).

use forebay_vfs::{Change, Trees};

use super::request::Target;
use super::{Request, Status, wire};
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader};

pub(super) async fn remove<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = request.with_name(target?, name).await?;
        let caller = request.identity(target)?;
        target.check_old_name(name)?;
        // These names denote directories, and only RMDIR has errors of its own for them.
        if matches!(name, b"." | b"..") {
            return Err(Status::ACCES);
        }
        if target.object.is_trash() {
            return Ok(target.object.delete_removed(&caller, name).await?);
        }
        let (fs, inode) = target.to_change()?;
        Ok(fs.remove(&caller, inode, name).await?)
    };
    let (status, change) = match result.await {
        Ok(change) => (Status::OK, change),
        Err(status) => (status, request.unchanged(target).await),
    };
    answer(request, status, &[(target, change)], reply);
    Ok(())
}

pub(super) async fn rmdir<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = request.with_name(target?, name).await?;
        let caller = request.identity(target)?;
        target.check_old_name(name)?;
        let (fs, inode) = target.to_change()?;
        Ok(fs.rmdir(&caller, inode, name).await?)
    };
    let (status, change) = match result.await {
        Ok(change) => (Status::OK, change),
        Err(status) => (status, request.unchanged(target).await),
    };
    answer(request, status, &[(target, change)], reply);
    Ok(())
}

pub(super) async fn rename<F: Trees>(
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
        let from = request.with_name(from, from_name).await?;
        let to = request.with_name(to, to_name).await?;
        let caller = request.identity(from)?;
        from.check_old_name(from_name)?;
        to.check_new_name(to_name)?;
        if from.object.is_trash() {
            let (_, new) = to.to_change()?;
            let back = from.object.bring_back(&caller, from_name, (new, to_name));
            return Ok(back.await?);
        }
        let ((fs, old), (_, new)) = (from.to_change()?, to.to_change()?);
        Ok(fs.rename(&caller, (old, from_name), (new, to_name)).await?)
    };
    let (status, old, new) = match result.await {
        Ok((old, new)) => (Status::OK, old, new),
        Err(status) => {
            let change = request.unchanged(from).await;
            (status, change, request.unchanged(to).await)
        }
    };
    answer(request, status, &[(from, old), (to, new)], reply);
    Ok(())
}

pub(super) async fn link<F: Trees>(
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
        let directory = request.with_name(directory, name).await?;
        directory.check_new_name(name)?;
        let ((fs, inode), (_, to)) = (target.to_change()?, directory.to_change()?);
        Ok(fs.link(&caller, inode, to, name).await?)
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
    results.post_op(request.ids(target), attributes.as_ref());
    results.change(request.ids(directory), &change);
    Ok(())
}

fn answer<F: Trees>(
    request: &Request<'_, F>,
    status: Status,
    changes: &[(Result<Target<'_, F>, Status>, Change)],
    reply: &mut Reply,
) {
    let mut results = reply.results();
    results.status(status);
    for (directory, change) in changes {
        results.change(request.ids(*directory), change);
    }
}
