import torch

from zeroone.nn.functional import channels_last, classify, hardmax, next_up, one_hot, step


def test_step_is_zero_at_zero_at_negative_zero_and_at_nan():
    u = torch.tensor([-1.0, -0.0, 0.0, float("nan"), 1e-45, 2.0, torch.inf, -torch.inf])
    assert step(u).tolist() == [0, 0, 0, 0, 1, 1, 1, 0]


def test_hardmax_gives_one_to_every_leader():
    u = torch.tensor([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]])
    assert hardmax(u).tolist() == [[0, 1, 1], [1, 1, 1], [1, 0, 0]]


def test_classify_takes_the_first_leader():
    assert classify(torch.tensor([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0]])).tolist() == [1, 0]


def test_one_hot():
    assert one_hot(torch.tensor([2, 0]), 3, torch.float64).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_next_up_is_the_smallest_larger_number():
    for dtype in (torch.float32, torch.float64):
        u = torch.tensor([-1e4, -1.0, 0.0, 1.0, 1e7], dtype=dtype)
        up = next_up(u)
        assert bool((up > u).all())
        back = torch.nextafter(up, torch.full_like(up, -torch.inf))
        assert torch.equal(back[u != 0], u[u != 0])
        assert float(up[2]) == torch.finfo(dtype).tiny  # not a subnormal, which may be flushed


def test_images_lie_with_their_channels_last():
    for channels in (1, 3):
        images = channels_last(torch.randn(2, channels, 4, 5))
        assert images.stride() == (20 * channels, 1, 5 * channels, channels)
