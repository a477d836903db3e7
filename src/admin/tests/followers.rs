//! Events over the control socket, and clients that follow them.

use std::ops::ControlFlow;

use super::*;
use crate::logging::{Event, Events, Severity};

fn some_event(message: &str) -> Event {
    Event {
        number: 0,
        unix_seconds: 1_790_000_000.5,
        level: Severity::Warn,
        module: "forebay::test".to_owned(),
        message: message.to_owned(),
        fields: [("client".to_owned(), "10.0.0.1".to_owned())].into(),
    }
}

/// A server that is still opening its volume, and its events.
fn opening_with_events(data_dir: &Path) -> (Events, JoinHandle<()>) {
    let events = Events::default();
    let server = Server::bind(data_dir).unwrap().with_events(events.clone());
    let server = tokio::spawn(async move {
        let (_opened, control) = watch::channel(None::<Arc<Fake>>);
        server.run(control, &Opening::default()).await;
    });
    (events, server)
}

#[tokio::test]
async fn events_are_listed_by_number_also_while_the_volume_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _server) = opening_with_events(dir.path());
    assert_eq!(events(dir.path(), 0).await.unwrap(), []);
    log.push(some_event("first"));
    log.push(some_event("second"));
    assert_eq!(events(dir.path(), 0).await.unwrap(), log.since(0));
    assert_eq!(events(dir.path(), 1).await.unwrap(), log.since(1));
}

#[tokio::test]
async fn a_follower_gets_each_event_once_and_learns_of_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (log, server) = opening_with_events(dir.path());
    log.push(some_event("first"));
    log.push(some_event("second"));
    let mut numbers = Vec::new();
    let followed = follow_events(dir.path(), 1, |followed| {
        let Followed::Event(event) = followed else {
            panic!("{followed:?}");
        };
        numbers.push(event.number);
        match event.number {
            // Each is the cause of the next.
            2..=5 => log.push(some_event("next")),
            _ => server.abort(),
        }
        ControlFlow::Continue(())
    });
    let error = timeout(Duration::from_secs(20), followed).await.unwrap();
    let error = error.unwrap_err();
    assert!(matches!(error, ClientError::Ended(_)), "{error}");
    assert_eq!(numbers, [2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn followers_are_few_and_make_room_when_they_leave() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _server) = opening_with_events(dir.path());
    log.push(some_event("first"));
    let follow = async || {
        let mut stream = UnixStream::connect(dir.path().join("control.sock"))
            .await
            .unwrap();
        let request = b"{\"command\":{\"events\":{\"after\":0,\"follow\":true}}}\n";
        stream.write_all(request).await.unwrap();
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).await.unwrap();
        (stream, String::from_utf8(answer.to_vec()).unwrap())
    };
    let mut followers = Vec::new();
    for _ in 0..8 {
        let (stream, answer) = follow().await;
        assert_eq!(answer, "{\"event\":");
        followers.push(stream);
    }
    assert_eq!(follow().await.1, "{\"error\":");
    // Other requests have places of their own.
    assert_eq!(events(dir.path(), 0).await.unwrap().len(), 1);
    followers.pop();
    while follow().await.1 != "{\"event\":" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_follower_that_does_not_read_is_dropped() {
    let log = Events::default();
    for _ in 0..100 {
        log.push(some_event("text"));
    }
    // Full after a part of the first event.
    let (_client, stream) = tokio::io::duplex(16);
    crate::admin::events::follow(stream, &log, 0, Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_follower_that_is_too_slow_learns_how_many_events_it_has_missed() {
    let log = Events::default();
    log.push(some_event("first"));
    let (mut client, stream) = tokio::io::duplex(16);
    let following = log.clone();
    let follower = tokio::spawn(async move {
        crate::admin::events::follow(stream, &following, 0, Duration::from_secs(60)).await;
    });
    // It has subscribed, and is in the middle of the first event.
    client.read_exact(&mut [0; 16]).await.unwrap();
    for _ in 0..200 {
        log.push(some_event("more"));
    }
    let mut text = Vec::new();
    while !text.ends_with(b"\"number\":201,") {
        text.push(client.read_u8().await.unwrap());
    }
    drop(client);
    follower.await.unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(lines[0], "{\"lost\":72}");
    assert!(
        lines[1].starts_with("{\"event\":{\"number\":74,"),
        "{}",
        lines[1]
    );
    assert_eq!(lines.len(), 1 + 128);
}
