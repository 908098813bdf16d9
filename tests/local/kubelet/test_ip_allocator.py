"""Address blocks are exclusive, and pod addresses unique."""

from paddle_operator.local.kubelet.ip_allocator import AddressBlock, IPAllocator


def test_block_is_exclusive_until_released() -> None:
    with AddressBlock.claim() as one:
        with AddressBlock.claim(preferred=one.number) as other:
            assert other.number != one.number
        number = one.number
    with AddressBlock.claim(preferred=number) as again:
        assert again.number == number


def test_addresses_are_allocated_in_sequence_and_once() -> None:
    addresses = IPAllocator(AddressBlock(16))
    assert addresses.reserve("old", "127.16.1.1")
    assert not addresses.reserve("other", "127.16.1.1")
    assert not addresses.reserve("foreign", "127.99.1.1")
    assert [addresses.allocate(uid) for uid in "ab"] == ["127.16.1.2", "127.16.1.3"]
    addresses.release("a", ["127.16.1.2"])
    assert addresses.allocate("c") == "127.16.1.4"
    many = {addresses.allocate(f"n{number}") for number in range(600)}
    assert len(many) == 600
    assert "127.16.3.1" in many
