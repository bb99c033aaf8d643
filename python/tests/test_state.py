"""Stop and resume, on any number of ranks."""

import json

import pytest
from conftest import numbers

import shardstream


def rest(loader):
    return [numbers(batch) for batch in loader]


def test_a_restored_loader_returns_the_remaining_batches(labels):
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
    assert rest(again) == rest(loader), "the next epochs are the same too"


def test_a_state_ignores_batches_that_were_prefetched(labels):
    loader = labels(prefetch=4)
    batches = iter(loader)
    next(batches)
    states = [loader.state_dict() for _ in range(3)]
    assert states[0] == states[1] == states[2] == batches.state_dict()
    again = labels()
    again.load_state_dict(states[0])
    assert numbers(next(iter(again))) == numbers(next(batches))


@pytest.mark.parametrize("epochs", [1, 3, None])
def test_a_loader_resumes_from_the_state_of_any_step(labels, epochs):
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


def test_another_number_of_ranks_continues_with_the_states_of_all_ranks(labels):
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


def part_of_epoch(labels, epoch, steps, **options):
    """The state after the first steps of an epoch, and the rest of the epoch's batches."""
    loader = labels(shuffle=40, **options)
    loader.set_epoch(epoch)
    batches = iter(loader)
    for _ in range(steps):
        next(batches)
    state = batches.state_dict()
    return state, [numbers(next(batches)) for _ in range(32 - steps)]


@pytest.mark.parametrize("steps", [0, 11, 31])
def test_set_epoch_keeps_a_loaded_state_of_that_epoch(labels, steps):
    state, expected = part_of_epoch(labels, 2, steps)
    loader = labels(shuffle=40)
    loader.load_state_dict(state)
    for epoch in range(2, 4):
        loader.set_epoch(epoch)
        seen = rest(loader)
        assert len(seen) == (32 - steps if epoch == 2 else 32)
        if epoch == 2:
            assert seen == expected
    loader.load_state_dict(state)
    loader.set_epoch(4)
    assert len(rest(loader)) == 32 and loader.epoch == 4


def test_set_epoch_keeps_the_state_at_the_end_of_the_epoch_before(labels):
    loader = labels(shuffle=40)
    rest(loader)
    state, second = loader.state_dict(), rest(loader)
    again = labels(shuffle=40)
    again.load_state_dict(state)
    again.set_epoch(1)
    assert rest(again) == second
    again.load_state_dict(state)
    again.set_epoch(0)
    assert rest(again) != second and again.epoch == 0


def test_set_epoch_keeps_a_loaded_state_without_an_end(labels):
    state, expected = part_of_epoch(labels, 2, 11, epochs=None)
    loader = labels(shuffle=40, epochs=None)
    loader.load_state_dict(state)
    loader.set_epoch(0)
    assert numbers(next(iter(loader))) == expected[0]


def test_a_loader_that_loads_an_earlier_state_continues_with_the_epochs_after_it(labels):
    loader = labels(shuffle=40)
    state, epochs = None, []
    for epoch in range(5):
        epochs.append(rest(loader))
        if epoch == 1:
            state = loader.state_dict()
    loader.load_state_dict(state)
    assert [rest(loader) for _ in range(3)] == epochs[2:] and loader.epoch == 4


def test_the_state_of_an_ended_epoch_must_fit_the_loader_too(labels):
    loader = labels(shuffle=20)
    rest(loader)
    state = loader.state_dict()
    for other in (labels(shuffle=20, seed=1), labels(shuffle=30)):
        other.load_state_dict(state)
        with pytest.raises(shardstream.StateError):
            iter(other)


def test_a_state_that_does_not_fit_leaves_the_current_iteration_as_it_is(labels):
    loader = labels(shuffle=20)
    batches = iter(loader)
    first = numbers(next(batches))
    loader.load_state_dict(labels(shuffle=30).state_dict())
    with pytest.raises(shardstream.StateError):
        iter(loader)
    assert [first, *(numbers(batch) for batch in batches)] == rest(labels(shuffle=20))
