"""Stop and resume, on any number of ranks."""

import json

import pytest
from conftest import numbers

import shardstream


def rest(loader):
    return [numbers(batch) for batch in loader]


def test_a_restored_loader_gives_what_was_left(labels):
    loader = labels(shuffle=40, seed=3)
    batches = iter(loader)
    for _ in range(11):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = rest(batches)
    assert len(expected) == 21
    again = labels(shuffle=40, seed=3)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert rest(again) == expected
    assert rest(again) == rest(loader), "the epochs after it are the same too"


def test_a_state_counts_what_was_returned_and_not_what_is_ahead(labels):
    loader = labels(prefetch=4)
    batches = iter(loader)
    next(batches)
    states = [loader.state_dict() for _ in range(3)]
    assert states[0] == states[1] == states[2] == batches.state_dict()
    again = labels()
    again.load_state_dict(states[0])
    assert numbers(next(iter(again))) == numbers(next(batches))


@pytest.mark.parametrize("epochs", [1, 3, None])
def test_a_state_at_any_step(labels, epochs):
    def steps(loader):
        return (numbers(batch) for _ in range(3) for batch in loader)

    loader = labels(shuffle=20, epochs=epochs, batch=64)
    states, expected = [loader.state_dict()], []
    for batch in steps(loader):
        expected.append(batch)
        states.append(loader.state_dict())
        if len(expected) == 12:
            break
    for at in range(0, 12):
        again = labels(shuffle=20, epochs=epochs, batch=64)
        again.load_state_dict(states[at])
        assert [batch for batch, _ in zip(steps(again), range(12 - at))] == expected[at:], at


def test_a_state_after_the_end_of_an_epoch_begins_the_next_one(labels):
    loader = labels(shuffle=20)
    rest(loader)
    state = loader.state_dict()
    second = rest(loader)
    again = labels(shuffle=20)
    again.load_state_dict(state)
    assert rest(again) == second and again.epoch == 1


def test_another_number_of_ranks_continues_with_the_states_of_all(labels):
    options = {"shuffle": 20, "streams": 8, "index": True}
    single = rest(labels(batch=32, **options))

    ranks = [labels(batch=8, rank=rank, world=4, **options) for rank in range(4)]
    iterators = [iter(loader) for loader in ranks]
    seen = [sorted(number for batches in iterators for number in numbers(next(batches))) for _ in range(3)]
    assert seen == [sorted(batch) for batch in single[:3]]
    states = [loader.state_dict() for loader in ranks]

    for world in (1, 2, 8):
        loaders = [labels(batch=32 // world, rank=rank, world=world, **options) for rank in range(world)]
        for loader in loaders:
            loader.load_state_dict(states)
        rows = zip(*loaders)
        assert [sorted(number for batch in row for number in numbers(batch)) for row in rows] == [
            sorted(batch) for batch in single[3:]
        ]
    with pytest.raises(shardstream.StateError):
        loaders[0].load_state_dict(states[1:])
    loaders[0].load_state_dict(shardstream.merge_states(states))


def test_an_iterator_has_the_methods_of_torchdata_and_of_grain(labels):
    batches = iter(labels(shuffle=20))
    for _ in range(5):
        next(batches)
    state, document = batches.state_dict(), batches.get_state()
    expected = numbers(next(batches))
    for load in (lambda b: b.load_state_dict(state), lambda b: b.set_state(document)):
        other = iter(labels(shuffle=20))
        next(other)
        load(other)
        assert numbers(next(other)) == expected
    loader = labels(shuffle=20)
    loader.set_state(document)
    assert loader.get_state() == document
    assert numbers(next(iter(loader))) == expected


def test_a_state_that_does_not_fit_is_an_error(labels):
    state = labels(shuffle=20).state_dict()
    for other in (labels(shuffle=20, seed=1), labels(shuffle=30)):
        other.load_state_dict(state)
        with pytest.raises(shardstream.StateError) as caught:
            iter(other)
        assert caught.value.kind == "state"
    endless = labels(shuffle=20, epochs=None)
    endless.load_state_dict(state)
    with pytest.raises(shardstream.StateError, match="epochs=None"):
        iter(endless)
    for nonsense in ({}, {"shardstream": "{"}, [], 7):
        with pytest.raises(shardstream.StateError):
            loader = labels(shuffle=20)
            loader.load_state_dict(nonsense)
            iter(loader)
