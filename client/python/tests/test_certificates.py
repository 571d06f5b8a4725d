"""Certificates: renewed on disk, ended, and those that nobody trusts."""

import contextlib
import logging
import random
import re
import shutil
import socketserver
import ssl
import subprocess
import threading
import time

import grpc
import pytest
from conftest import check_batch, take

import millrace
from millrace import certificates
from millrace.config import TLS

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")

KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"


def openssl(folder, command):
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def authority(folder):
    folder.mkdir(exist_ok=True)
    openssl(folder, f"req -x509 {KEY} -subj /CN=authority -days 9 -keyout ca.key -out ca.pem")
    return folder


def issue(folder, days=9, by=None, extension=""):
    """Writes own.pem and own.key, signed by the authority of a folder, which is copied there."""
    by = by or folder
    folder.mkdir(exist_ok=True)
    openssl(folder, f"req -new {KEY} -subj /CN=own -keyout own.key -out own.csr")
    (folder / "ext").write_text(f"subjectAltName=IP:127.0.0.1\n{extension}\n")
    sign = f"x509 -req -in own.csr -CA {by}/ca.pem -CAkey {by}/ca.key -set_serial 2 -days {days}"
    openssl(folder, f"{sign} -extfile ext -out own.pem")
    if by != folder:
        shutil.copy(by / "ca.pem", folder / "ca.pem")
    return {f"tls_{name}": str(folder / file) for name, file in FILES.items()}


FILES = {"ca": "ca.pem", "cert": "own.pem", "key": "own.key"}


def server(folder):
    """Returns the credentials of a server that asks for certificates."""
    ca, cert, key = ((folder / file).read_bytes() for file in FILES.values())
    return grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)


@pytest.fixture
def theirs(tmp_path):
    """The folder of the service's certificate."""
    issue(authority(tmp_path / "theirs"))
    return tmp_path / "theirs"


def test_renewed_certificates_are_read_again(tmp_path, theirs, serve, open_loader):
    """The service is started again with certificates of another authority."""
    ours = tmp_path / "ours"
    service = serve(credentials=server(theirs))
    loader = open_loader(service, prefetch=0, **issue(ours, by=theirs))
    check_batch(service, next(loader), 0, 0)
    next(loader)
    service.stop()
    issue(authority(theirs))
    issue(ours, by=theirs)
    service.credentials = server(theirs)
    service.start(service.port)
    check_batch(service, next(loader), 1, 0)


def test_files_that_are_half_renewed_are_not_used(tmp_path, caplog):
    folder = authority(tmp_path / "own")
    tls = TLS(*issue(folder).values())
    files = certificates.files_of(tls)
    held = files.read()
    key = (folder / "own.key").read_bytes()
    (folder / "own.key").write_bytes(key[:60])
    with caplog.at_level(logging.WARNING, "millrace"):
        assert files.read() == held and files.read() == held
    assert len(caplog.messages) == 1 and "own.key" in caplog.text and "not used" in caplog.text
    assert key[60:80].decode() not in caplog.text
    issue(folder)
    renewed = files.read()
    assert renewed != held and renewed[1] == (folder / "own.key").read_bytes()


KINDS = {
    "for encryption only": "keyUsage=keyEncipherment,dataEncipherment",
    "for servers only": "extendedKeyUsage=serverAuth",
    "unknown critical extension": "1.2.3.4=critical,ASN1:UTF8String:x",
}


@pytest.mark.parametrize("extension", KINDS.values(), ids=KINDS)
def test_what_a_certificate_is_for_the_service_judges(tmp_path, caplog, monkeypatch, extension):
    """One is read at the start and when it is renewed, and its dates count."""
    folder = authority(tmp_path / "own")
    tls = TLS(*issue(folder, days=6, extension=extension).values())
    files = certificates.files_of(tls)
    assert files.read()[2] == (folder / "own.pem").read_bytes()
    issue(folder, days=6, extension=extension)
    assert files.read()[2] == (folder / "own.pem").read_bytes()
    now = time.time()
    monkeypatch.setattr(certificates.time, "time", lambda: now + 7 * 86400)
    with caplog.at_level(logging.WARNING, "millrace"):
        held = files.read()
        assert "own.pem has ended" in caplog.text
        issue(folder, days=6, extension=extension)
        assert files.read() == held
    assert "have changed and are not used: the TLS certificate" in caplog.text
    with pytest.raises(millrace.UserError, match=r"own.pem is valid from"):
        certificates.Files(tls).read()


@pytest.mark.parametrize("days", [9, 20000])  # the form of a time has a century from 2050 on
def test_dates_are_those_that_openssl_says(tmp_path, days):
    folder = authority(tmp_path / "own")
    issue(folder, days)
    command = ["openssl", "x509", "-in", "own.pem", "-noout", "-dates"]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    want = tuple(ssl.cert_time_to_seconds(line.partition("=")[2]) for line in said.splitlines())
    pem = (folder / "own.pem").read_bytes()
    assert certificates._dates((folder / "own.key").read_bytes() + pem) == want


def test_dates_that_cannot_be_read_are_not_known(tmp_path, monkeypatch):
    folder = authority(tmp_path / "own")
    tls = TLS(*issue(folder).values())
    der = ssl.PEM_cert_to_DER_cert((folder / "own.pem").read_text())
    for size in range(len(der)):
        assert certificates._dates(ssl.DER_cert_to_PEM_cert(der[:size]).encode()) is None
    draw = random.Random(1)
    for _ in range(2000):  # whatever the bytes are, there is an answer
        damaged = bytearray(der)
        damaged[draw.randrange(200)] = draw.randrange(256)
        certificates._dates(ssl.DER_cert_to_PEM_cert(bytes(damaged)).encode())
    assert certificates._dates(b"") is None
    monkeypatch.setattr(certificates, "_dates", lambda pem: None)
    assert certificates.Files(tls).read()[2] == (folder / "own.pem").read_bytes()


def test_files_that_vanish_while_they_are_read_are_an_error_of_the_user(tmp_path, monkeypatch):
    tls = TLS(*issue(authority(tmp_path / "own")).values())

    def gone(path):
        raise FileNotFoundError(f"{path} is gone")

    monkeypatch.setattr(certificates, "_read", gone)
    with pytest.raises(millrace.UserError, match=r"ca.pem is gone: give PEM files"):
        certificates.Files(tls).read()


def test_the_end_is_said_before(tmp_path, caplog, monkeypatch):
    folder = authority(tmp_path / "own")
    files = certificates.files_of(TLS(*issue(folder, days=6).values()))
    now = time.time()
    with caplog.at_level(logging.WARNING, "millrace"):
        files.read()
        assert not caplog.messages
        for days, words in (5.1, "ends soon"), (6.1, "has ended"):
            caplog.clear()
            monkeypatch.setattr(certificates.time, "time", lambda days=days: now + days * 86400)
            files.read()
            files.read()
            assert len(caplog.messages) == 1 and words in caplog.text and "own.pem" in caplog.text


def test_a_certificate_that_nobody_would_accept_is_refused_at_once(tmp_path):
    folder = authority(tmp_path / "own")
    ended = issue(folder, days=0)
    time.sleep(1.1)
    day = re.escape(time.strftime("%Y-%m-%d", time.gmtime()))
    loader = millrace.connect("127.0.0.1:9", dp_rank=0, timeout=600, **ended)
    with pytest.raises(millrace.UserError, match=rf"own.pem is valid from {day}T.*renew it"):
        next(loader)
    loader.close()


def test_the_other_side_may_have_another_authority(tmp_path, theirs, serve, open_loader):
    ours = issue(authority(tmp_path / "ours"))
    credentials = grpc.ssl_server_credentials(
        [((theirs / "own.key").read_bytes(), (theirs / "own.pem").read_bytes())],
        (tmp_path / "ours" / "ca.pem").read_bytes(),
        require_client_auth=True,
    )
    service = serve(credentials=credentials)
    loader = open_loader(service, **{**ours, "tls_ca": str(theirs / "ca.pem")})
    check_batch(service, next(loader), 0, 0)


def test_who_is_not_trusted_hears_it_at_once(tmp_path, theirs, serve, open_loader):
    service = serve(credentials=server(theirs))
    foreign = issue(authority(tmp_path / "foreign"))
    loader = open_loader(service, timeout=600, **foreign)
    with pytest.raises(millrace.UserError, match=r"foreign/own.pem.*CERTIFICATE_VERIFY_FAILED"):
        next(loader)
    with pytest.raises(millrace.UserError, match=f"{service.address} takes TLS only"):
        next(open_loader(service, timeout=600))


@pytest.fixture
def strict(theirs):
    """The address of one who says why it refuses a certificate, as Go's servers do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs / "own.pem", theirs / "own.key")
    context.load_verify_locations(theirs / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):
                context.wrap_socket(self.request, server_side=True).close()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever).start()
        yield f"127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_who_is_refused_hears_why(tmp_path, theirs, strict):
    bare = {"tls_ca": str(theirs / "ca.pem")}
    third = issue(authority(tmp_path / "third"))
    with open(third["tls_ca"], "ab") as authorities:
        authorities.write((theirs / "ca.pem").read_bytes())
    for options, words in (bare, "alert certificate required"), (third, "alert unknown ca"):
        loader = millrace.connect(strict, dp_rank=0, timeout=600, **options)
        with pytest.raises(millrace.UserError, match=f"do not trust each other.*{words}"):
            next(loader)
        loader.close()


def test_who_was_trusted_asks_again(tmp_path, theirs, serve, open_loader):
    """What the service does not take any more may be renewed."""
    service = serve(credentials=server(theirs))
    ours = issue(tmp_path / "ours", by=theirs)
    loader = open_loader(service, prefetch=0, **ours)
    take(loader, 2)
    service.stop()
    another = issue(authority(tmp_path / "another"))
    service.credentials = server(tmp_path / "another")
    service.start(service.port)
    timer = threading.Timer(2, lambda: [shutil.copy(another[name], ours[name]) for name in ours])
    timer.start()
    check_batch(service, next(loader), 1, 0)
    timer.join()
    assert loader.stats.retries > 0
