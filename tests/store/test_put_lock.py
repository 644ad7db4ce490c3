"""The lock of puts: one thread at a time, and each one's turn comes."""

import threading
import time

import pytest

from gantrymq.store.log.append import PutLock


def test_put_lock_has_one_holder() -> None:
    lock, inside, most, done = PutLock(), 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        for number in range(300):
            with lock:
                inside += 1
                most = max(most, inside)
                if number % 100 == 0:
                    time.sleep(0.001)  # another thread comes meanwhile
                inside -= 1
                done += 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done, inside) == (1, 8 * 300, 0)


@pytest.mark.parametrize("held_s", [0.002, 0.1])
def test_put_lock_wakes_waiter(held_s: float) -> None:
    """Also one that has waited for longer than it looks again by itself."""
    lock, got = PutLock(), threading.Event()

    def wait() -> None:
        with lock:
            got.set()

    with lock:
        thread = threading.Thread(target=wait)
        thread.start()
        assert not got.wait(held_s)
    assert got.wait(60)
    thread.join()


def test_exception_releases_put_lock() -> None:
    lock = PutLock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    with lock:
        pass
