//! A client hello of TLS 1.3 and 1.2, built field by field, so that it is the same in every run.

/// Bytes before the body of the handshake message: the record's header and the message's.
const HEADERS: usize = 9;

fn with_length_16(into: &mut Vec<u8>, data: &[u8]) {
    into.extend((data.len() as u16).to_be_bytes());
    into.extend_from_slice(data);
}

fn extension(into: &mut Vec<u8>, kind: u16, data: &[u8]) {
    into.extend(kind.to_be_bytes());
    with_length_16(into, data);
}

/// A record with a client hello that a server with an ECDSA key goes on with.
pub(crate) fn client_hello() -> Vec<u8> {
    let mut extensions = Vec::new();
    // The name of the server, `localhost`.
    let mut name = vec![0, 12, 0];
    with_length_16(&mut name, b"localhost");
    extension(&mut extensions, 0, &name);
    // Groups: X25519 and P-256.
    extension(&mut extensions, 10, &[0, 4, 0, 29, 0, 23]);
    // Signatures: ECDSA with SHA-256 and SHA-384, RSA-PSS, Ed25519.
    let schemes = [0, 8, 4, 3, 5, 3, 8, 4, 8, 7];
    extension(&mut extensions, 13, &schemes);
    // Versions 1.3 and 1.2.
    extension(&mut extensions, 43, &[4, 3, 4, 3, 3]);
    // Resumption with Diffie-Hellman.
    extension(&mut extensions, 45, &[1, 1]);
    // A share of X25519, the base point.
    let mut share = vec![0, 36, 0, 29, 0, 32, 9];
    share.resize(7 + 31, 0);
    extension(&mut extensions, 51, &share);
    // The extended master secret and point formats of version 1.2.
    extension(&mut extensions, 23, &[]);
    extension(&mut extensions, 11, &[1, 0]);

    let mut record = vec![22, 3, 1, 0, 0, 1, 0, 0, 0];
    record.extend([3, 3]);
    record.extend([7; 32]);
    record.push(32);
    record.extend([8; 32]);
    // Suites of 1.3, and of 1.2 with ECDSA.
    with_length_16(
        &mut record,
        &[0x13, 1, 0x13, 2, 0x13, 3, 0xc0, 0x2b, 0xc0, 0x2c],
    );
    record.extend([1, 0]);
    with_length_16(&mut record, &extensions);
    fix_lengths(&mut record);
    record
}

/// Has the headers say the length that there is, so that the body is parsed.
pub(crate) fn fix_lengths(record: &mut [u8]) {
    if record.len() < HEADERS || record.len() > 1 << 14 {
        return;
    }
    let message = (record.len() - 5) as u16;
    record[3..5].copy_from_slice(&message.to_be_bytes());
    record[6] = 0;
    record[7..9].copy_from_slice(&(message - 4).to_be_bytes());
}
