"""Certificates for tests, made as docs/deployment.md makes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from backend.auth import Access

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def authority(folder: Path) -> Path:
    """A new CA, in this folder."""
    folder.mkdir()
    openssl(folder, "req", "-x509", *EC, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    return folder


def issued(
    ca: Path, names: str = "DNS:localhost,IP:127.0.0.1", key: str = "host", common_name: str = "seaway"
) -> Access:
    """A certificate of this CA for these names, with its key."""
    (ca / "host.ext").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    openssl(ca, "req", *EC, "-keyout", f"{key}.key", "-out", f"{key}.csr", "-subj", f"/CN={common_name}")
    openssl(ca, "x509", "-req", "-in", f"{key}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "host.ext", "-out", f"{key}.pem")  # fmt: skip
    ca_pem, cert, secret = (ca / name for name in ("ca.pem", f"{key}.pem", f"{key}.key"))
    return Access(ca=ca_pem.read_bytes(), cert=cert.read_bytes(), key=secret.read_bytes())
