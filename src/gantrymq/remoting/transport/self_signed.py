"""Makes a self-signed certificate for a server, for clients that use TLS without authenticating the server.

RocketMQ does so in its default test mode (``tls.test.mode.enable``). The certificate has a new key on the curve P-256.

Source: TlsHelper, which uses Netty's SelfSignedCertificate.
"""

import datetime
import ssl
import tempfile

from gantrymq.errors import ConfigError

_BEGIN = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


def self_signed_context(name: str = "gantrymq") -> ssl.SSLContext:
    """A server's SSL context with a new certificate that ``name`` issues to itself.

    Raises ConfigError without the extra ``tls``.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        remedy = "a certificate's path, or install the extra tls, which makes one: pip install 'gantrymq[tls]'"
        raise ConfigError("tls.server.certPath", None, remedy) from None
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), _BEGIN, _END)
    certificate = builder.sign(key, hashes.SHA256())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(prefix="gantrymq-tls-") as file:  # OpenSSL reads certificates only from files
        file.write(certificate.public_bytes(encoding))
        file.write(key.private_bytes(encoding, form, serialization.NoEncryption()))
        file.flush()
        context.load_cert_chain(file.name)
    return context
