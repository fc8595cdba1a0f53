"""nginx as a WebDAV server: GET, PUT, DELETE and MOVE, and PROPFIND where the dav-ext module is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

from .server import Server, program

_DAV_EXT = ("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so", "/usr/lib64/nginx/modules/ngx_http_dav_ext_module.so")
# One process, without a master: killing or pausing it stops everything.
_SETTINGS = """
{load}
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            root {folder}/files;
            dav_methods PUT DELETE MKCOL COPY MOVE;
            create_full_put_path on;
            {dav_ext}
        }}
    }}
}}
"""


class NginxServer(Server):
    """`listing`: whether PROPFIND works; False leaves the dav-ext module out."""

    def __init__(self, *, listing: bool = True) -> None:
        self._module = next((path for path in _DAV_EXT if listing and Path(path).exists()), None)
        super().__init__()

    @property
    def listing(self) -> bool:
        """Whether it can list names."""
        return self._module is not None

    def command(self) -> list[str]:
        """Write the settings, and use nothing of the machine's own."""
        path = program("nginx", "nginx libnginx-mod-http-dav-ext")
        (self.folder / "files").mkdir(exist_ok=True)
        load = f"load_module {self._module};" if self._module else ""
        dav_ext = "dav_ext_methods PROPFIND OPTIONS;" if self._module else ""
        text = _SETTINGS.format(folder=self.folder, port=self.port, load=load, dav_ext=dav_ext)
        (self.folder / "nginx.conf").write_text(text)
        return [path, "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://127.0.0.1:{self.port}"

    def empty(self) -> None:
        """Remove every file."""
        shutil.rmtree(self.folder / "files")
        (self.folder / "files").mkdir()
