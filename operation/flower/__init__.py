"""Every use of Flower that is not its public interface."""
