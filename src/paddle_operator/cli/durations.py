"""How long something took, as short as kubectl writes it."""


def duration_in_words(seconds: float) -> str:
    """12s, 3m05s, 2h10m, 3d."""
    whole = int(seconds)
    if whole < 100:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d"
