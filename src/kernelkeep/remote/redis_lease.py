"""Leases in Redis and Valkey. The server counts the time and compares before it writes, each in one script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lease import DURATION_SECONDS, Record, State, StoreLease

# Takes the lease, or returns the record that is in the way. Records begin with their state and their token. What has no expiry
# is not a lease. ARGV: owner, milliseconds, the token of the holder that the caller waits for.
_TAKE = """
local found = redis.call('GET', KEYS[1])
if found and redis.call('PTTL', KEYS[1]) > 0 then
  local state, token, owner = string.match(found, '^(%a+) (%d+) (%x+) ')
  if state == 'held' or (state == 'failed' and token == ARGV[3]) then return found end
end
local record = 'held ' .. redis.call('INCR', KEYS[2]) .. ' ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' 0'
redis.call('SET', KEYS[1], record, 'PX', ARGV[2])
return record
"""
_RENEW = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0"
_RELEASE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
_RELEASE_FAILED = (
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2]) or 0"
)


class RedisLease(StoreLease):
    """A lease under a key that expires. Tokens come from one counter for the whole namespace, so they outlive the key."""

    def __init__(
        self, run_script: Callable[..., Any], key: str, counter: str, duration_seconds: float = DURATION_SECONDS
    ) -> None:
        super().__init__(key, duration_seconds)
        self._run_script = run_script
        self._keys = (key, counter)
        self._milliseconds = int(duration_seconds * 1000)
        self._record = b""

    def try_to_take(self) -> State | None:
        """One script."""
        data = bytes(self._run(_TAKE, self.owner, self._milliseconds, self.waited_for))
        record = Record.decode(data)
        if record is None:
            return State.HELD
        if record.owner == self.owner and record.state is State.HELD:
            self.token, self._record = record.token, data
            return None
        if record.state is State.HELD:
            self.waited_for = record.token
        return record.state

    def extend(self) -> bool:
        """One script."""
        return bool(self._run(_RENEW, self._record, self._milliseconds))

    def give_up(self, state: State) -> None:
        """Remove the key; a failure is remembered for as long as a lease lasts."""
        if state is State.FAILED:
            record = Record(state, self.token, self.owner, self._milliseconds).encode()
            self._run(_RELEASE_FAILED, self._record, self._milliseconds, record)
        else:
            self._run(_RELEASE, self._record)

    def _run(self, script: str, *arguments: Any) -> Any:
        return self._run_script(script, self._keys, arguments)
