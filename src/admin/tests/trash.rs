//! The trash over the control socket, and clients that leave or are slow.

use super::*;
use crate::admin::fake::some_trash;

#[tokio::test]
async fn objects_in_the_trash_come_in_parts() {
    for broken in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake {
            broken,
            ..Fake::default()
        };
        let (_, running) = start(folder.path(), fake);
        let request = TrashRequest::Id { id: 7, to: None };
        let mut rows = Vec::new();
        let asked = trash(folder.path(), request, |some| rows.extend(some)).await;
        match asked {
            Ok(report) => {
                assert!(!broken);
                assert_eq!((report.objects, report.left), (Vec::new(), 4));
                assert_eq!(rows, [1, 2, 3].map(some_trash));
            }
            Err(refused) => {
                assert!(broken && refused.to_string().contains("id: 7"));
                assert_eq!(rows, [some_trash(1)]);
            }
        }
        running.abort();
    }
}

/// A gateway that has much to say about an undelete, and a client that has asked for it.
async fn much_comes_back(folder: &Path, parts: u64) -> (Arc<Fake>, JoinHandle<()>, UnixStream) {
    let fake = Fake {
        parts,
        ..Fake::default()
    };
    let (fake, running) = start(folder, fake);
    let socket = folder.join("control.sock");
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let request = b"{\"command\":{\"trash\":{\"path\":{\"path\":\"/top\",\"to\":null}}}}\n";
    stream.write_all(request).await.unwrap();
    (fake, running, stream)
}

async fn all_is_taken(fake: &Fake) {
    let all = async {
        while fake.taken.load(Ordering::Relaxed) < fake.parts {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), all).await.unwrap();
}

#[tokio::test]
async fn undelete_goes_on_when_its_client_leaves_half_way_or_takes_nothing() {
    for leaves in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (fake, running, mut stream) = much_comes_back(folder.path(), 40).await;
        let mut first = [0; 1000];
        stream.read_exact(&mut first).await.unwrap();
        // More than the socket holds is on its way.
        assert!(fake.taken.load(Ordering::Relaxed) < 10);
        let held = match leaves {
            true => None,
            false => Some(stream),
        };
        // Others are answered meanwhile.
        status(folder.path()).await.unwrap();
        all_is_taken(&fake).await;
        drop(held);
        running.abort();
    }
}

#[tokio::test]
async fn a_client_that_is_slow_gets_every_part_of_an_undelete() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, running, mut stream) = much_comes_back(folder.path(), 6).await;
    let (mut all, mut some) = (Vec::new(), vec![0; 100_000]);
    loop {
        // A piece for each answer that another client gets.
        status(folder.path()).await.unwrap();
        match stream.read(&mut some).await.unwrap() {
            0 => break,
            length => all.extend_from_slice(&some[..length]),
        }
    }
    assert_eq!(fake.taken.load(Ordering::Relaxed), 6);
    let lines = all
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let replies = lines.map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap());
    let replies: Vec<_> = replies.collect();
    let (last, parts) = replies.split_last().unwrap();
    let number = |part: &serde_json::Value| part["trashed"][0]["id"].as_u64();
    let numbers: Vec<_> = parts.iter().map(number).collect();
    assert_eq!(numbers, (0..6).map(Some).collect::<Vec<_>>());
    assert_eq!(last["trash"]["left"], 0, "{last}");
    running.abort();
}
