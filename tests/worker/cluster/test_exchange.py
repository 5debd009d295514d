"""What processes of a cluster say is heard in order, and each gets its own answers."""

import asyncio
import pickle

from worker.cluster.exchange import Exchange


def test_each_process_gets_the_answer_to_what_it_asked() -> None:
    async def talk() -> tuple[list[tuple[int, bytes]], bytes, bytes]:
        exchange = Exchange()
        await exchange.say(1, b"here")
        first, second = (asyncio.create_task(exchange.ask(rank, b"what?")) for rank in (0, 1))
        await asyncio.sleep(0)
        heard = await exchange.hear(10)
        await exchange.answer(1, b"one")
        await exchange.answer(0, b"zero")
        await exchange.answer(0, b"nobody asked")
        return heard, await first, await second

    assert asyncio.run(talk()) == ([(1, b"here"), (0, b"what?"), (1, b"what?")], b"zero", b"one")


def test_silence_ends_the_wait_and_loses_nothing() -> None:
    async def listen() -> list[list[tuple[int, bytes]]]:
        exchange = Exchange()
        nothing = await exchange.hear(0.01)
        await exchange.say(0, pickle.dumps("word"))
        return [nothing, await exchange.hear(0.01)]

    assert asyncio.run(listen()) == [[], [(0, pickle.dumps("word"))]]
