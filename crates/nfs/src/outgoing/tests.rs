//! Messages, and calls to a machine that answers correctly, wrongly, or not at all.

use super::message::call;
use super::*;

const STATUS: Program = Program {
    number: 100_024,
    version: 1,
};

fn reply(xid: u32, rest: &[u32]) -> Vec<u8> {
    let values = [&[xid, 1][..], rest].concat();
    values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect()
}

#[test]
fn addresses_are_written_as_rpcbind_has_them() {
    for (text, address) in [
        ("10.1.2.3.8.1", "10.1.2.3:2049"),
        ("0.0.0.0.0.111", "0.0.0.0:111"),
        ("::.8.1", "[::]:2049"),
        ("fe80::1.255.255", "[fe80::1]:65535"),
    ] {
        let address: SocketAddr = address.parse().unwrap();
        assert_eq!(universal_address(address), text);
        assert_eq!(parse_address(text.as_bytes()), Some(address));
    }
    for wrong in ["", "10.1.2.3", "10.1.2.3.256.1", "10.1.2.3.1.", "x.1.1"] {
        assert_eq!(parse_address(wrong.as_bytes()), None, "{wrong}");
    }
}

#[test]
fn a_reply_has_results_or_a_reason() {
    let refused = |wire: &[u8]| matches!(results(7, wire), Err(Failure::Refused(_)));
    let good = reply(7, &[0, 0, 0, 0, 42]);
    assert_eq!(results(7, &good).unwrap(), 42u32.to_be_bytes());
    assert!(refused(&reply(8, &[0, 0, 0, 0, 42])), "another call's");
    assert!(refused(&reply(7, &[1, 1, 5])), "denied");
    (1..=5).for_each(|why| assert!(refused(&reply(7, &[0, 0, 0, why, 3, 3]))));
    (0..good.len() - 4).for_each(|end| assert!(refused(&good[..end]), "{end}"));
}

#[test]
fn the_answer_of_a_portmapper_is_a_port_or_none() {
    let v4 = IpAddr::from([192, 0, 2, 1]);
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let port = |host, wire: &[u8]| portmapper::port(host, wire);
    assert_eq!(port(v4, &[0, 0, 8, 1]).unwrap(), 2049);
    for none in [[0; 4], [0, 1, 0, 0]] {
        assert!(matches!(port(v4, &none), Err(Failure::Unreachable(_))));
    }
    assert!(matches!(port(v4, &[0]), Err(Failure::Refused(_))));
    let mut answer = Vec::new();
    crate::xdr::Writer::new(&mut answer).opaque(b"2001:db8::1.8.1");
    assert_eq!(port(v6, &answer).unwrap(), 2049);
    assert!(matches!(port(v6, &[0; 4]), Err(Failure::Unreachable(_))));
}

#[tokio::test]
async fn a_stream_gives_the_fragments_of_one_reply() {
    let (mut near, mut far) = tokio::io::duplex(1024);
    let server = tokio::spawn(async move {
        let mut call = [0; 8];
        far.read_exact(&mut call).await.unwrap();
        assert_eq!(call, *b"\x80\0\0\x04ask!");
        far.write_all(b"\0\0\0\x02ab\x80\0\0\x01c").await.unwrap();
    });
    assert_eq!(by_stream(&mut near, b"ask!").await.unwrap(), b"abc");
    server.await.unwrap();
}

#[tokio::test]
async fn a_stream_without_end_or_measure_is_given_up() {
    for wire in [&b"\x80\x10\0\0"[..], b"\x80\0\0\x05abc", b"\0\0\0\x03abc"] {
        let (mut near, mut far) = tokio::io::duplex(1024);
        far.write_all(wire).await.unwrap();
        tokio::spawn(async move {
            far.read_exact(&mut [0; 8]).await.unwrap();
        });
        assert!(by_stream(&mut near, b"ask!").await.is_err());
    }
}

#[tokio::test]
async fn a_call_goes_by_udp_where_there_is_no_tcp() {
    let local = IpAddr::from([127, 0, 0, 1]);
    let socket = UdpSocket::bind((local, 0)).await.unwrap();
    let portmapper = socket.local_addr().unwrap().port();
    // One socket plays both portmapper and program.
    tokio::spawn(async move {
        let mut wire = [0; 1024];
        loop {
            let (_, from) = socket.recv_from(&mut wire).await.unwrap();
            let number = |at: usize| u32::from_be_bytes(wire[at..at + 4].try_into().unwrap());
            let result = match number(12) {
                100_000 => u32::from(portmapper),
                program => program,
            };
            let answer = reply(number(0), &[0, 0, 0, 0, result]);
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    let remote = Remote {
        host: local,
        local,
        portmapper,
    };
    let answer = remote.call(STATUS, 6, &[]).await.unwrap();
    assert_eq!(answer, STATUS.number.to_be_bytes());
}

#[test]
fn a_call_has_number_program_and_arguments() {
    let (xid, wire) = call(STATUS, 6, &[9, 9, 9, 9]);
    let decoded = crate::rpc::Call::decode(&wire).unwrap();
    assert_eq!(decoded.xid, xid);
    let target = (decoded.program, decoded.version, decoded.procedure);
    assert_eq!(target, (STATUS.number, STATUS.version, 6));
    assert_eq!(decoded.arguments.rest(), [9; 4]);
}
