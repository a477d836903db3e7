//! Clients that trace calls over the control socket.

use std::ops::ControlFlow;

use super::*;
use crate::trace::TraceRequest;

/// A gateway that serves no calls.
fn serving(data_dir: &Path) -> JoinHandle<()> {
    let server = Server::bind(data_dir).unwrap();
    let (opened, control) = watch::channel(Some(Arc::new(Fake::default())));
    tokio::spawn(async move {
        server.run(control, &Opening::default()).await;
        drop(opened);
    })
}

/// Asks for a trace, and returns the beginning of the answer.
async fn ask(data_dir: &Path) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(data_dir.join("control.sock"))
        .await
        .unwrap();
    let request = b"{\"command\":{\"trace\":{}}}\n";
    stream.write_all(request).await.unwrap();
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).await.unwrap();
    (stream, String::from_utf8(answer.to_vec()).unwrap())
}

#[tokio::test]
async fn traces_are_few_and_make_room_when_their_clients_leave() {
    let dir = tempfile::tempdir().unwrap();
    let _server = serving(dir.path());
    let mut traces = Vec::new();
    for _ in 0..8 {
        let (stream, answer) = ask(dir.path()).await;
        assert_eq!(answer, "\"tracing\"");
        traces.push(stream);
    }
    assert_eq!(ask(dir.path()).await.1, "{\"error\":");
    traces.pop();
    while ask(dir.path()).await.1 != "\"tracing\"" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_trace_says_that_it_has_begun_and_ends_with_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving(dir.path());
    let mut traced = Vec::new();
    let trace = trace(dir.path(), TraceRequest::default(), |next| {
        traced.push(next);
        server.abort();
        ControlFlow::Continue(())
    });
    let error = timeout(Duration::from_secs(20), trace).await.unwrap();
    assert!(matches!(error, Err(ClientError::Ended(_))), "{error:?}");
    assert_eq!(traced, [Traced::Begun]);
}

#[tokio::test]
async fn a_procedure_that_there_is_not_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _server = serving(dir.path());
    let request = TraceRequest {
        procedure: Some("READV".to_owned()),
        ..TraceRequest::default()
    };
    let error = trace(dir.path(), request, |_| ControlFlow::Continue(())).await;
    let error = error.unwrap_err();
    assert!(
        matches!(&error, ClientError::Refused(why) if why.contains("READV")),
        "{error}"
    );
}

#[tokio::test]
async fn a_gateway_that_is_opening_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::bind(dir.path()).unwrap();
    let _server = tokio::spawn(async move {
        let (_opened, control) = watch::channel(None::<Arc<Fake>>);
        server.run(control, &Opening::default()).await;
    });
    let error = trace(dir.path(), TraceRequest::default(), |_| {
        ControlFlow::Continue(())
    });
    let error = error.await.unwrap_err();
    assert!(matches!(error, ClientError::Opening { .. }), "{error}");
}
