//! LOOKUP, READLINK, CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813, sections 3.3.3, 3.3.5, 3.3.8 to
//! 3.3.11).

use forebay_vfs::{Attributes, CreateMode, Created, Device, NewNode, SetAttributes, Trees};

use super::request::Target;
use super::{MAX_SYMLINK_BYTES, Request, Status, wire};
use crate::object::Object;
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader};

pub(super) async fn lookup<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let found = async {
        let target = request.with_name(target?, name).await?;
        let caller = request.identity(target)?;
        wire::check_name(name)?;
        // Clients of an export must not see the directories above it.
        let name = match name {
            b".." if request.leads_out(target).await? => b".",
            name => name,
        };
        let (object, attributes) = target.object.lookup(&caller, name).await?;
        Ok((object, attributes))
    };
    let found: Result<(Object<'_, F>, Attributes), Status> = found.await;
    let directory = request.attributes(target).await;
    let mut results = reply.results();
    match (&target, &found) {
        (Ok(target), Ok((object, attributes))) => {
            results.status(Status::OK);
            results.opaque(&request.handle(*target, *object));
            results.post_op(request.handles.ids(object.tree), Some(attributes));
        }
        (Err(status), _) | (_, Err(status)) => results.status(*status),
    }
    results.post_op(request.ids(target), directory.as_ref());
    Ok(())
}

pub(super) async fn readlink<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    arguments.end()?;
    let target = request.target(handle);
    let result = async {
        let target = target?;
        let caller = request.identity(target)?;
        Ok(target.object.readlink(&caller).await?)
    };
    match result.await {
        Ok((path, attributes)) => {
            let mut results = reply.results();
            results.status(Status::OK);
            results.post_op(request.ids(target), Some(&attributes));
            results.opaque(&path);
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

pub(super) async fn create<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    let mode = match arguments.u32()? {
        0 => CreateMode::Unchecked(wire::set_attributes(&mut arguments)?),
        1 => CreateMode::Guarded(wire::set_attributes(&mut arguments)?),
        2 => CreateMode::Exclusive(arguments.array()?),
        _ => return Err(Malformed),
    };
    arguments.end()?;
    let target = request.target(handle);
    let created = async {
        let target = request.with_name(target?, name).await?;
        let caller = request.identity(target)?;
        target.check_new_name(name)?;
        if let CreateMode::Unchecked(set) | CreateMode::Guarded(set) = &mode {
            wire::check(set)?;
        }
        let (fs, inode) = target.to_change()?;
        Ok(fs.create(&caller, inode, name, &mode).await?)
    };
    let created = created.await;
    answer(request, target, created, reply).await;
    Ok(())
}

pub(super) async fn mkdir<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    let set = wire::set_attributes(&mut arguments)?;
    arguments.end()?;
    make(request, handle, name, Ok(NewNode::Directory), &set, reply).await;
    Ok(())
}

pub(super) async fn symlink<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    let set = wire::set_attributes(&mut arguments)?;
    let path = arguments.opaque(usize::MAX)?;
    arguments.end()?;
    let node = match path.len() {
        0 => Err(Status::INVAL),
        1..=MAX_SYMLINK_BYTES => Ok(NewNode::Symlink(path)),
        _ => Err(Status::NAMETOOLONG),
    };
    make(request, handle, name, node, &set, reply).await;
    Ok(())
}

pub(super) async fn mknod<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let (handle, name) = wire::name(&mut arguments)?;
    let kind = arguments.u32()?;
    let set = match kind {
        3 | 4 | 6 | 7 => wire::set_attributes(&mut arguments)?,
        _ => SetAttributes::default(),
    };
    let node = match kind {
        3 => Ok(NewNode::BlockDevice(device(&mut arguments)?)),
        4 => Ok(NewNode::CharDevice(device(&mut arguments)?)),
        6 => Ok(NewNode::Socket),
        7 => Ok(NewNode::Fifo),
        // Regular files, directories and symbolic links have separate procedures.
        1 | 2 | 5 => Err(Status::BADTYPE),
        _ => return Err(Malformed),
    };
    arguments.end()?;
    make(request, handle, name, node, &set, reply).await;
    Ok(())
}

fn device(arguments: &mut Reader<'_>) -> Result<Device, Malformed> {
    Ok(Device {
        major: arguments.u32()?,
        minor: arguments.u32()?,
    })
}

async fn make<F: Trees>(
    request: &Request<'_, F>,
    handle: &[u8],
    name: &[u8],
    node: Result<NewNode<'_>, Status>,
    set: &SetAttributes,
    reply: &mut Reply,
) {
    let target = request.target(handle);
    let created = async {
        let target = request.with_name(target?, name).await?;
        let caller = request.identity(target)?;
        target.check_new_name(name)?;
        let node = node?;
        wire::check(set)?;
        let (fs, inode) = target.to_change()?;
        Ok(fs.make(&caller, inode, name, node, set).await?)
    };
    let created = created.await;
    answer(request, target, created, reply).await;
}

/// Appends the results that all creating procedures have in common.
async fn answer<F: Trees>(
    request: &Request<'_, F>,
    directory: Result<Target<'_, F>, Status>,
    created: Result<Created, Status>,
    reply: &mut Reply,
) {
    let status = match (&directory, &created) {
        (Ok(target), Ok(created)) => {
            let mut results = reply.results();
            results.status(Status::OK);
            results.bool(true);
            let object = target.object.sibling(created.attributes.inode);
            results.opaque(&request.handle(*target, object));
            results.post_op(request.ids(directory), Some(&created.attributes));
            results.change(request.ids(directory), &created.directory);
            return;
        }
        (Err(status), _) | (_, Err(status)) => *status,
    };
    let change = request.unchanged(directory).await;
    let mut results = reply.results();
    results.status(status);
    results.change(request.ids(directory), &change);
}
