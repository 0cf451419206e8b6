"""Thread pools: order of results, errors, end of a block, and work without threads."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import CancelledError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.indexes.word_encoder import WordEncoder
from support.processes import run_python

from quarry import engine
from quarry.engine import Engine, IndexClosed, InvalidDocument
from quarry.engine.process.worker_pool import PoolClosed, WorkAhead, WorkerPool, map_on_threads, result_of


def of_name(prefix: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


class Trouble(Exception):
    pass


def double(number: int) -> int:
    if number < 0:
        raise Trouble(number)
    return 2 * number


class TestWorkAhead:
    @given(st.lists(st.integers(0, 99)), st.integers(1, 4), st.integers(1, 20))
    def test_results_are_those_of_a_loop(self, items, threads, n_ahead):
        with WorkerPool(threads, "test") as pool, WorkAhead(pool, items, double, n_ahead) as futures:
            assert [result_of(future) for future in futures] == [double(item) for item in items]

    @pytest.mark.parametrize("n_ahead", [1, 3, 50])
    def test_no_more_is_taken_than_is_allowed(self, n_ahead):
        taken = []

        def items():
            for number in range(20):
                taken.append(number)
                yield number

        with WorkerPool(2, "test") as pool, WorkAhead(pool, items(), double, n_ahead) as futures:
            for n_given, _ in enumerate(futures, 1):
                assert len(taken) == min(20, n_given - 1 + n_ahead)

    def test_an_error_of_an_item_is_raised_in_its_turn_and_what_comes_after_is_still_there(self):
        with WorkerPool(2, "test") as pool, WorkAhead(pool, [1, -1, 2], double, 2) as futures:
            assert result_of(next(futures)) == 2
            with pytest.raises(Trouble):
                result_of(next(futures))
            assert result_of(next(futures)) == 4
            with pytest.raises(StopIteration):
                next(futures)

    @pytest.mark.parametrize("n_ahead", [1, 2, 9])
    def test_an_error_of_the_source_comes_after_all_items_before_it(self, n_ahead):
        def items():
            yield from range(5)
            raise Trouble

        with WorkerPool(2, "test") as pool, WorkAhead(pool, items(), double, n_ahead) as futures:
            assert [result_of(next(futures)) for _ in range(5)] == [0, 2, 4, 6, 8]
            with pytest.raises(Trouble):
                next(futures)
            with pytest.raises(StopIteration):
                next(futures)

    def test_nothing_is_under_way_behind_the_block(self):
        running: set[int] = set()
        began = threading.Event()

        def work(number: int) -> None:
            running.add(number)
            began.set()
            time.sleep(0.05)
            running.discard(number)

        def fail(pool: WorkerPool) -> None:
            with WorkAhead(pool, range(100), work, 50) as futures:
                next(futures)
                began.wait()
                raise Trouble

        with WorkerPool(2, "test") as pool:
            with pytest.raises(Trouble):
                fail(pool)
            assert not running
            assert pool.submit(double, 3).result() == 6  # the pool still works

    def test_a_collected_one_waits_for_nothing(self):
        lock = threading.Lock()

        def work(_: int) -> None:
            with lock:
                pass

        with WorkerPool(2, "test") as pool:
            futures = WorkAhead(pool, range(4), work, 4)
            with lock:
                next(futures)
                del futures
                gc.collect()

    def test_an_error_of_work_that_looks_like_a_cancelled_future_stays_what_it_is(self):
        def work(_: int) -> None:
            raise CancelledError

        with WorkerPool(1, "test") as pool, pytest.raises(CancelledError):
            result_of(pool.submit(work, 1))


class TestWorkerPool:
    def test_threads_are_used_again_and_end_with_the_pool(self):
        idents = set()
        with WorkerPool(1, "test-again") as pool:
            assert not of_name("test-again")
            for _ in range(5):
                with WorkAhead(pool, range(5), lambda _: threading.get_ident(), 3) as futures:
                    idents |= {result_of(future) for future in futures}
            assert len(of_name("test-again")) == 1
        assert len(idents) == 1
        assert not of_name("test-again")

    def test_a_closed_pool_raises_an_error(self):
        pool = WorkerPool(1, "test")
        hold, began = threading.Event(), threading.Event()

        def work(_: int) -> None:
            began.set()
            hold.wait()

        first, second = pool.submit(work, 1), pool.submit(work, 2)
        began.wait()
        closing = threading.Thread(target=pool.close)
        closing.start()
        with pytest.raises(PoolClosed):  # it had not begun
            result_of(second)
        hold.set()
        closing.join()
        assert result_of(first) is None
        with pytest.raises(PoolClosed):
            pool.submit(double, 1)
        pool.close()

    def test_dropping_a_pool_does_not_wait_and_ends_its_threads(self):
        pool = WorkerPool(2, "test-dropped")
        result_of(pool.submit(double, 1))
        threads = of_name("test-dropped")
        assert threads
        del pool
        gc.collect()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()

    def test_work_is_done_here_if_no_thread_can_be_had(self):
        """If no thread can be started, as at exit, work runs on the calling thread; results and errors keep their
        order.
        """
        script = """
import atexit, threading
from quarry.engine.process.worker_pool import WorkAhead, WorkerPool, result_of

def work(number):
    return 6 // number, threading.get_ident()

def at_exit():
    here = threading.get_ident()
    with WorkerPool(3, "test") as pool, WorkAhead(pool, [1, 0, 2], work, 2) as futures:
        assert result_of(next(futures)) == (6, here)
        try:
            result_of(next(futures))
        except ZeroDivisionError:
            print("in its turn")
        assert result_of(next(futures)) == (3, here)

atexit.register(at_exit)
"""
        done = run_python("-c", script, timeout_s=None)
        assert (done.stdout, done.stderr) == ("in its turn\n", "")


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_map_on_threads(threads):
    assert map_on_threads(double, range(20), threads, "test-map") == [double(number) for number in range(20)]
    assert map_on_threads(double, [], threads, "test-map") == []
    with pytest.raises(Trouble, match="-2"):
        map_on_threads(double, [1, -2, 3, -4], threads, "test-map")
    assert not of_name("test-map")


class Slow(WordEncoder):
    """Records which threads encode, and how many at the same time."""

    def __init__(self) -> None:
        super().__init__(dim=16)
        object.__setattr__(self, "threads", set())

    def windows(self, text):
        self.threads.add(threading.get_ident())
        time.sleep(0.002)
        return super().windows(text)


class TestTheWriter:
    @pytest.fixture
    def encoder(self):
        return Slow()

    @pytest.fixture
    def index(self, tmp_path, encoder):
        engine.build(["one"], tmp_path / "index", encoder=encoder)
        encoder.threads.clear()
        with Engine.open(tmp_path / "index", writable=True, encoder=encoder, threads=2) as index:
            yield index
        assert not of_name("quarry-encode")

    def test_the_same_threads_encode_all_additions(self, index, encoder):
        for _ in range(5):
            index.add([f"text {number}" for number in range(20)])
        assert len(encoder.threads) <= 2

    def test_nothing_is_encoded_after_an_addition_that_failed(self, index, encoder):
        for _ in range(3):
            with pytest.raises(InvalidDocument):
                index.add([*(f"text {number}" for number in range(5)), "...", *["more"] * 50])
            encoder.threads.clear()
            time.sleep(0.05)
            assert not encoder.threads
        assert index.add(["one more"]) == 1

    def test_several_threads_add(self, index, encoder):
        taken = []
        threads = [
            threading.Thread(target=lambda: taken.append(index.add([f"text {number}" for number in range(50)])))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert taken == [50] * 4
        assert len(encoder.threads) <= 2
        index.commit()
        assert len(index) == 201

    def test_documents_that_add_documents(self, index):
        """The iterable is read on the calling thread, so that it may add to the same index."""

        def documents():
            for number in range(20):
                index.add([f"inner {number}"])
                yield f"outer {number}"

        assert index.add(documents()) == 20
        index.commit()
        assert len(index) == 41

    def test_one_thread_adds_and_another_closes(self, index):
        raised = []
        began = threading.Event()

        def documents():
            while True:
                began.set()
                yield "text"

        def add():
            try:
                index.add(documents())
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=add)
        thread.start()
        began.wait()
        index.close()
        thread.join()
        assert [type(error) for error in raised] == [IndexClosed]
